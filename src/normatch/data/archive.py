"""Read the files of a data set one after the other, from its tar archive or from the unpacked folder."""

import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from normatch.data.source import Archive, MissingFiles, verify
from normatch.errors import UserError, reason

__all__ = ["Found", "Layout", "Member", "find"]


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

    def read(self, size: int) -> bytes:
        """The next ``size`` bytes."""
        with _as_user_errors(self.place):
            return self.stream.read(size)

    def read_all(self, *, exactly: int | None = None, most: int = 1 << 20) -> bytes:
        """All bytes; :class:`UserError` unless there are ``exactly`` or at ``most`` that many, as in the original."""
        self.expect(exactly, most)
        return self.read(self.size)

    def expect(self, exactly: int | None, most: int = 0) -> None:
        if self.size != exactly if exactly is not None else self.size > most:
            wanted = f"{exactly:,} are expected" if exactly is not None else f"at most {most:,} are expected"
            raise UserError(
                f"{self.place} has {self.size:,} bytes, {wanted}: it is truncated or not the original; get it again"
            )


@dataclass(frozen=True)
class Found:
    """A layout that was found: ``place`` is the folder of its members, or its archive."""

    name: str
    layout: Layout
    place: Path

    def members(self) -> Iterator[Member]:
        """Each member once, in any order, including all required ones; read each before advancing to the next."""
        return self._unpacked() if self.place.is_dir() else self._packed()

    def _unpacked(self) -> Iterator[Member]:
        for name in (*self.layout.members, *self.layout.optional):
            path = self.place / name
            if path.is_file():
                with path.open("rb") as stream:
                    yield Member(name, str(path), path.stat().st_size, stream)

    def _packed(self) -> Iterator[Member]:
        verify(self.place, self.layout.archive, self.name)
        wanted = {*self.layout.members, *self.layout.optional}
        # One pass in the archive's own order: going back in a compressed file means decompressing it again.
        with _as_user_errors(str(self.place)):
            tar = tarfile.open(self.place)  # noqa: SIM115 - closed below, where a reader's own errors pass unchanged
        with tar:
            while wanted:
                with _as_user_errors(str(self.place)):
                    info = tar.next()
                    name = PurePosixPath(info.name).name if info else ""
                    stream = tar.extractfile(info) if info and name in wanted and _is_plain(info) else None
                if info is None:
                    break
                if stream is not None:
                    wanted.remove(name)
                    yield Member(name, f"{self.place} ({info.name})", info.size, stream)
        missing = [name for name in self.layout.members if name in wanted]
        if missing:
            raise UserError(
                f"{self.place} lacks {', '.join(missing)}: delete it and run `normatch data get {self.name}`"
            )


def _is_plain(info: tarfile.TarInfo) -> bool:
    """Not a link, which may lead to itself, nor a sparse file, whose size says nothing of its content."""
    return info.isreg() and not info.issparse()


def find(name: str, where: Path, layouts: Sequence[Layout]) -> Found:
    """The first layout with all members in its folder or in ``where`` itself, else the first whose archive exists."""
    places = [(layout, folder) for layout in layouts for folder in (where / layout.folder, where)]
    absent = [[file for file in layout.members if not (folder / file).is_file()] for layout, folder in places]
    for (layout, folder), files in zip(places, absent, strict=True):
        if not files:
            return Found(name, layout, folder)
    for layout in layouts:
        if (where / layout.archive.name).is_file():
            return Found(name, layout, where / layout.archive.name)
    for (layout, folder), files in zip(places, absent, strict=True):
        if len(files) < len(layout.members):
            raise MissingFiles(name, folder, files, partial=True)
    raise MissingFiles(name, where, [layouts[0].archive.name], partial=False)


@contextmanager
def _as_user_errors(place: str) -> Iterator[None]:
    """Turn read errors of a damaged archive or file into a UserError."""
    try:
        yield
    except Exception as error:  # a damaged archive can raise nearly anything
        raise UserError(f"cannot read {place}: {reason(error)}; it is truncated or damaged, get it again") from error
