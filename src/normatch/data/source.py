"""Named data sets: where their original files are published, how they are found and verified, who reads them."""

import hashlib
import re
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from normatch.data.dataset import Corpus
from normatch.errors import UserError, reason
from normatch.registry import Registry

__all__ = [
    "Archive",
    "Layout",
    "Member",
    "MissingFiles",
    "Source",
    "md5_of",
    "open_members",
    "pick",
    "reading_original",
    "sources",
    "verify",
]


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
    read: Callable[..., Corpus]
    """Called with the folder of the files, packed or unpacked, and :class:`~normatch.data.images.Reading`, which
    matters only to readers of image files."""
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
        self.partial = partial
        verb, them = ("is", "it") if len(files) == 1 else ("are", "them")
        remedy = remedy or f"run `normatch data get {name}`, or put {them} there"
        super().__init__(f"{name}: {', '.join(files)} {verb} missing in {where}: {remedy}")


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
    expected = archive.md5
    if sidecar.is_file():
        stated = re.search(r"\b[0-9a-fA-F]{32}\b", sidecar.read_text(errors="replace"))
        expected = stated.group().lower() if stated else "none"
    if expected is not None and (actual := md5_of(path)) != expected:
        raise UserError(
            f"{path} has a wrong checksum: its md5 is {actual}, but should be {expected}; delete it and run "
            f"`normatch data get {name}`, or, if you packed it yourself, run `md5sum {path.name} > {sidecar.name}` in "
            "its folder"
        )


@contextmanager
def reading_original(place: Path | str) -> Iterator[None]:
    """Turn whatever a damaged original raises, which may be nearly anything, into a UserError that names it."""
    try:
        yield
    except Exception as error:
        why = f"it lacks {error}" if isinstance(error, KeyError) else reason(error)
        raise UserError(
            f"cannot read {place}: {why}; it is truncated, damaged or not the original: get it again"
        ) from error


@dataclass(frozen=True)
class Layout:
    """One form in which a data set is published: a tar archive that unpacks ``members`` into ``folder``."""

    archive: Archive
    folder: str
    members: tuple[str, ...]
    optional: tuple[str, ...] = ()


@dataclass(frozen=True)
class Member:
    """A file, open for reading, in a folder or inside an archive. ``place`` is its location, for messages."""

    name: str
    place: str
    size: int
    stream: IO[bytes]

    def read(self, most: int = 1 << 20) -> bytes:
        """All bytes; ValueError if there are more than the original can have."""
        if self.size > most:
            raise ValueError(f"it has {self.size:,} bytes, at most {most:,} are expected")
        return self.stream.read(self.size)


def open_members(name: str, where: Path, layouts: Sequence[Layout]) -> tuple[Layout, Iterator[Member]]:
    """The first layout with all members in its folder or in ``where`` itself, else the first whose archive exists.

    Members come once each, in any order, with all required ones; read each before advancing to the next.
    """
    places = [(layout, folder) for layout in layouts for folder in (where / layout.folder, where)]
    absent = [[file for file in layout.members if not (folder / file).is_file()] for layout, folder in places]
    for (layout, folder), files in zip(places, absent, strict=True):
        if not files:
            return layout, _unpacked(folder, layout)
    for layout in layouts:
        if (where / layout.archive.name).is_file():
            return layout, _packed(where / layout.archive.name, layout, name)
    for (layout, folder), files in zip(places, absent, strict=True):
        if len(files) < len(layout.members):
            raise MissingFiles(name, folder, files, partial=True)
    raise MissingFiles(name, where, [layouts[0].archive.name], partial=False)


def _unpacked(folder: Path, layout: Layout) -> Iterator[Member]:
    for path in (folder / name for name in (*layout.members, *layout.optional)):
        if path.is_file():
            with path.open("rb") as stream:
                yield Member(path.name, str(path), path.stat().st_size, stream)


def _packed(place: Path, layout: Layout, name: str) -> Iterator[Member]:
    verify(place, layout.archive, name)
    wanted = {*layout.members, *layout.optional}
    # One pass in the archive's own order: going back in a compressed file means decompressing it again.
    with reading_original(place):
        with tarfile.open(place) as tar:
            for info in tar:
                member = PurePosixPath(info.name).name
                # Not a link, which may lead to itself, nor a sparse file, whose size says nothing of its content.
                if member in wanted and info.isreg() and not info.issparse():
                    wanted.remove(member)
                    stream = tar.extractfile(info)
                    assert stream is not None
                    yield Member(member, f"{place} ({info.name})", info.size, stream)
        if missing := [file for file in layout.members if file in wanted]:
            raise ValueError(f"it lacks {', '.join(missing)}")
