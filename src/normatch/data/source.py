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
from normatch.data.folder import Listings
from normatch.errors import UserError, reason
from normatch.registry import Registry

__all__ = [
    "Archive",
    "Member",
    "MissingFiles",
    "Source",
    "find",
    "md5_of",
    "open_members",
    "reading_original",
    "sources",
]


@dataclass(frozen=True)
class Archive:
    """A file as its site publishes it. ``md5`` is the published checksum, None if there is none."""

    url: str
    md5: str | None = None
    size: int | None = None

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]


@dataclass(frozen=True)
class Source:
    """A data set that is known by name."""

    summary: str
    classes: int
    shape: tuple[int, int, int]
    """(C, H, W) of one image."""
    read: Callable[[Path], Corpus | Listings]
    """Called with the folder of the original files; of image files it only lists them."""
    home: str
    archives: tuple[Archive, ...] = ()
    """What ``normatch data get`` downloads."""
    embedded: bool = False
    """Comes with an installed package: there is nothing to download."""


sources: Registry[Source] = Registry("data set", package="normatch.data.readers")


class MissingFiles(UserError):
    """Files of a data set are missing in the folder ``where``."""

    def __init__(self, where: Path, files: Sequence[str]) -> None:
        super().__init__(f"{', '.join(files)} {'is' if len(files) == 1 else 'are'} missing in {where}")


def find(where: Path, archives: Sequence[Archive]) -> list[Path]:
    """The files in the folder ``where``; UserError if one is missing, or not the one that is published.

    For a file packed anew, put its checksum into ``<file>.md5`` next to it, as written by ``md5sum FILE > FILE.md5``:
    it then replaces the published one.
    """
    paths = [where / archive.name for archive in archives]
    if missing := [path.name for path in paths if not path.is_file()]:
        raise MissingFiles(where, missing)
    for path, archive in zip(paths, archives, strict=True):
        sidecar, expected = path.with_name(f"{path.name}.md5"), archive.md5
        if sidecar.is_file():
            stated = re.search(r"\b[0-9a-fA-F]{32}\b", sidecar.read_text(errors="replace"))
            expected = stated.group().lower() if stated else "none"
        if expected is not None and (actual := md5_of(path)) != expected:
            raise UserError(
                f"{path} has a wrong checksum: its md5 is {actual}, but should be {expected}; delete it and get it "
                f"again or, if you packed it yourself, run `md5sum {path.name} > {sidecar.name}` in its folder"
            )
    return paths


def md5_of(path: Path) -> str:
    with path.open("rb") as file:
        # With usedforsecurity=False, hashlib has md5 even where a FIPS policy forbids it.
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


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


def open_members(
    where: Path, archive: Archive, folder: str, names: Sequence[str], optional: Sequence[str] = ()
) -> Iterator[Member]:
    """The files of a tar archive, unpacked in ``folder`` or in ``where`` itself, or else still in the archive.

    They come once each, in any order, with all of ``names``; read each before advancing to the next.
    """
    for place in (where / folder, where):
        missing = [name for name in names if not (place / name).is_file()]
        if not missing:
            return _unpacked(place, (*names, *optional))
        if len(missing) < len(names) and not (where / archive.name).is_file():
            raise MissingFiles(place, missing)
    (path,) = find(where, [archive])
    return _packed(path, names, optional)


def _unpacked(folder: Path, names: Sequence[str]) -> Iterator[Member]:
    for path in (folder / name for name in names):
        if path.is_file():
            with path.open("rb") as stream:
                yield Member(path.name, str(path), path.stat().st_size, stream)


def _packed(path: Path, names: Sequence[str], optional: Sequence[str]) -> Iterator[Member]:
    wanted = {*names, *optional}
    # One pass in the archive's own order: going back in a compressed file means decompressing it again.
    with reading_original(path), tarfile.open(path) as tar:
        for info in tar:
            name = PurePosixPath(info.name).name
            # Not a link, which may lead to itself, nor a sparse file, whose size says nothing of its content.
            if name in wanted and info.isreg() and not info.issparse() and (stream := tar.extractfile(info)):
                wanted.remove(name)
                yield Member(name, f"{path} ({info.name})", info.size, stream)
        if missing := wanted.intersection(names):
            raise ValueError(f"it lacks {', '.join(sorted(missing))}")
