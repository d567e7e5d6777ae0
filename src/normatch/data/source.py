"""Named data sets: where their original files are published, how they are found and verified, who reads them."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from normatch.data.dataset import Corpus
from normatch.data.images import DEFAULT, Reading
from normatch.errors import UserError
from normatch.registry import Registry

__all__ = ["Archive", "MissingFiles", "Reader", "Source", "md5_of", "pick", "sources", "verify"]


class Reader(Protocol):
    """Reads the files in a folder, packed or unpacked; ``reading`` matters only to readers of image files."""

    def __call__(self, where: Path, reading: Reading = DEFAULT, /) -> Corpus: ...


@dataclass(frozen=True)
class Archive:
    """A file as its site publishes it. ``md5`` is the published checksum, None if there is none."""

    url: str
    name: str
    md5: str | None
    size: int | None = None


@dataclass(frozen=True)
class Source:
    """A named data set."""

    name: str
    summary: str
    classes: int
    shape: tuple[int, int, int]
    """(C, H, W) of one image."""
    read: Reader
    home: str
    archives: tuple[Archive, ...] = ()
    """What ``normatch data get`` downloads."""
    embedded: bool = False
    """Comes with an installed package: there is nothing to download."""


sources: Registry[Source] = Registry("data set", package="normatch.data.readers")


class MissingFiles(UserError):
    """Files of a data set are missing in the folder ``where``.

    ``partial`` means that other files of the data set are there, so that it is the right folder.
    """

    def __init__(self, name: str, where: Path, files: Sequence[str], *, partial: bool, remedy: str = "") -> None:
        self.name, self.where, self.files, self.partial = name, where, tuple(files), partial
        self.remedy = remedy or f"run `normatch data get {name}`, or put {'it' if len(files) == 1 else 'them'} there"
        super().__init__(self.message(str(where)))

    def message(self, where: str) -> str:
        verb = "is" if len(self.files) == 1 else "are"
        return f"{self.name}: {', '.join(self.files)} {verb} missing in {where}: {self.remedy}"


def pick(name: str, where: Path, choices: Sequence[tuple[str, ...]]) -> list[Path]:
    """For each tuple of alternative names, the first file that exists in ``where``; if none does, report the last."""
    found = [next((where / file for file in files if (where / file).is_file()), None) for files in choices]
    missing = [files[-1] for files, path in zip(choices, found, strict=True) if path is None]
    if missing:
        raise MissingFiles(name, where, missing, partial=len(missing) < len(choices))
    return [path for path in found if path is not None]


def md5_of(path: Path) -> str:
    with path.open("rb") as file:
        # With usedforsecurity=False, hashlib has md5 even where a FIPS policy forbids it.
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def verify(path: Path, archive: Archive, name: str) -> None:
    """Raise :class:`UserError` unless ``path`` is the file its site publishes for the data set ``name``.

    For a repacked archive, put its checksum into ``<file>.md5`` next to it, as written by ``md5sum FILE > FILE.md5``:
    it then replaces the published one.
    """
    sidecar = path.with_name(path.name + ".md5")
    expected, source = archive.md5, "is published"
    if sidecar.is_file():
        stated = re.search(r"\b[0-9a-fA-F]{32}\b", sidecar.read_text(errors="replace"))
        if stated is None:
            raise UserError(
                f"{sidecar} states no md5: write it with `md5sum {path.name} > {sidecar.name}`, or delete it"
            )
        expected, source = stated.group().lower(), f"{sidecar.name} states"
    if expected is None or (actual := md5_of(path)) == expected:
        return
    again, size = f"delete it and run `normatch data get {name}`", path.stat().st_size
    if archive.size is not None and size < archive.size and not sidecar.is_file():
        raise UserError(f"{path} is truncated: it has {size:,} of {archive.size:,} bytes; {again}")
    raise UserError(
        f"{path} has a wrong checksum: its md5 is {actual}, but {expected} {source}; {again}, "
        f"or, if you packed it yourself, run `md5sum {path.name} > {sidecar.name}` in its folder"
    )
