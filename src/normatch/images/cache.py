"""Decoded images on disk: a file for each list of image files and each form they were decoded to.

An entry is the pixels, (N, H, W, C) bytes as they lie in memory; then a row of facts for each image; then a JSON
object with the shape and the unreadable files; then a tail of fixed length with the JSON's length and checksum. It is
written beside its place and renamed, so it is whole or absent, and its checksums are compared whenever it is opened.
"""

import datetime
import hashlib
import json
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from normatch.columns import counted
from normatch.errors import UserError, reason
from normatch.images.decode import VERSION
from normatch.images.facts import FACTS
from normatch.images.worker import Form

__all__ = ["Cache", "Entry", "Part", "cache_folder", "describe_cache"]

SUFFIX = ".decoded"
TAIL = struct.Struct("<QI8s")
"""Length and checksum of the JSON, and the mark that ends every entry."""
MARK = b"normatch"
CHUNK = 1 << 20


def cache_folder() -> Path:
    """Where decoded images are kept: ``$NORMATCH_CACHE``, or ``~/.cache/normatch/decoded``."""
    return Path(os.environ.get("NORMATCH_CACHE") or "~/.cache/normatch/decoded").expanduser()


@dataclass(frozen=True)
class Entry:
    """The readable images of a list and their facts; ``bad`` is why each of the others, by position, is not one."""

    images: NDArray[np.uint8]
    facts: NDArray[Any]
    bad: dict[int, str]


class Cache:
    """Entries in one folder."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or cache_folder()

    def key(self, paths: Sequence[Path]) -> str:
        """Names a list of files as they are now: another path, size, time or order is another key."""
        from PIL import __version__ as pillow

        digest = hashlib.blake2b(f"{VERSION} {pillow}".encode(), digest_size=16)
        here = os.getcwd()
        for path in paths:
            absolute = os.path.join(here, path)
            try:
                found = os.stat(absolute)
                state = f"{found.st_size} {found.st_mtime_ns} {os.access(absolute, os.R_OK)}"
            except OSError:
                state = "absent"
            digest.update(f"{absolute}\0{state}\0".encode(errors="surrogateescape"))
        return digest.hexdigest()

    def facts(self, key: str) -> NDArray[Any] | None:
        """The facts of the listed images, whatever form they were decoded to; None unless all of them are known.

        An entry has none of a file that could not be decoded, though its header may have been read for the form.
        """
        for path in sorted(self.folder.glob(f"{key}-*{SUFFIX}")):
            about = _about(path)
            if about is not None and not about.bad:
                return about.facts
        return None

    def open(self, key: str, form: Form) -> Entry | None:
        """The entry, memory-mapped; None where there is none, or a damaged one."""
        path = self._path(key, form)
        about = _about(path)
        if about is None or about.shape[1:] != form or _checksum(path, about.size) != about.checksum:
            return None
        return Entry(_mapped(path, about.shape), about.facts, about.bad)

    @contextmanager
    def writing(self, key: str, form: Form) -> Iterator["Part"]:
        """A part to write; unless it is finished, nothing remains of it."""
        path = self._path(key, form)
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                with part.open("wb") as file:
                    yield Part(path, part, file, form)
            finally:
                part.unlink(missing_ok=True)
        except OSError as error:
            raise UserError(
                f"cannot write decoded images to {self.folder}: {reason(error)}; "
                "set NORMATCH_CACHE to another folder, or give --no-cache"
            ) from error

    def listing(self) -> list[dict[str, Any]]:
        """What there is: ``file``, ``bytes``, ``images``, ``shape``, ``source``, ``written``.

        A damaged entry is listed by its file, size and time alone.
        """
        rows = []
        for path in sorted(self.folder.glob(f"*{SUFFIX}")):
            about, found = _about(path), path.stat()
            written = datetime.datetime.fromtimestamp(found.st_mtime, datetime.UTC).isoformat(timespec="seconds")
            row: dict[str, Any] = {"file": str(path), "bytes": found.st_size, "written": written}
            if about is not None:
                row |= {"images": about.shape[0], "shape": list(about.shape[1:]), "source": about.source}
            rows.append(row)
        return rows

    def clear(self) -> list[dict[str, Any]]:
        """Delete all entries, and what killed processes left of some; the listing of what was there."""
        rows = self.listing()
        for pattern in (f"*{SUFFIX}", f".*{SUFFIX}.*.part"):
            for path in self.folder.glob(pattern):
                path.unlink(missing_ok=True)
        return rows

    def _path(self, key: str, form: Form) -> Path:
        return self.folder / f"{key}-{'x'.join(map(str, form))}{SUFFIX}"


def describe_cache(folder: Path, rows: list[dict[str, Any]], *, cleared: bool) -> str:
    """A listing as text."""
    lines = []
    for row in rows:
        what = f"{row['images']:,} × {'×'.join(map(str, row['shape']))}" if "images" in row else "damaged"
        lines.append(f"{row['bytes'] / 1e6:>10,.1f} MB  {row['written'][:10]}  {what}  {row.get('source', '')}")
    total = sum(row["bytes"] for row in rows) / 1e6
    verb = "deleted" if cleared else "in all"
    return "\n".join([*lines, f"{total:>10,.1f} MB  {verb}, {counted(len(rows), 'entry', 'entries')}: {folder}"])


class Part:
    """An entry while it is written: pixels are appended, then the rest finishes it."""

    def __init__(self, path: Path, part: Path, file: BinaryIO, form: Form) -> None:
        self._path, self._part, self._file, self._form = path, part, file, form
        self._images = self._checksum = 0

    def append(self, images: NDArray[np.uint8]) -> None:
        self._images += len(images)
        self._checksum = zlib.crc32(images.data, self._checksum)
        self._file.write(images.data)

    def finish(self, facts: NDArray[Any], bad: dict[int, str], *, source: str, keep: bool) -> Entry:
        """Put the entry in its place and map it; or, if it is not to be kept, only read it."""
        shape = (self._images, *self._form)
        rows = facts.tobytes()
        text = json.dumps(
            {
                "shape": shape,
                "bad": bad,
                "checksum": self._checksum,
                "facts_checksum": zlib.crc32(rows),
                "source": source,
            }
        ).encode()
        self._file.write(rows + text + TAIL.pack(len(text), zlib.crc32(text), MARK))
        self._file.flush()
        if not keep:
            return Entry(np.fromfile(self._part, np.uint8, int(np.prod(shape))).reshape(shape), facts, bad)
        os.fsync(self._file.fileno())
        os.replace(self._part, self._path)
        return Entry(_mapped(self._path, shape), facts, bad)


@dataclass(frozen=True)
class _About:
    """What an entry says of itself behind its pixels."""

    shape: tuple[int, int, int, int]
    facts: NDArray[Any]
    bad: dict[int, str]
    checksum: int
    source: str

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))


def _about(path: Path) -> _About | None:
    """None where there is no entry, or what stands behind its pixels is damaged."""
    try:
        with path.open("rb") as file:
            end = file.seek(-TAIL.size, os.SEEK_END)
            length, checksum, mark = TAIL.unpack(file.read())
            file.seek(end - length)
            text = file.read(length)
            if mark != MARK or zlib.crc32(text) != checksum:
                return None
            value = json.loads(text)
            n, height, width, channels = value["shape"]
            size, rows = n * height * width * channels, n * FACTS.itemsize
            file.seek(size)
            facts = file.read(rows)
            if size + rows + length != end or zlib.crc32(facts) != value["facts_checksum"]:
                return None
    except (OSError, ValueError):
        return None
    bad = {int(i): why for i, why in value["bad"].items()}
    shape = (n, height, width, channels)
    return _About(shape, np.frombuffer(facts, FACTS), bad, value["checksum"], value["source"])


def _checksum(path: Path, size: int) -> int:
    # Read, not mapped: the pages would count as this process's memory.
    checksum = 0
    with path.open("rb") as file:
        while size and (chunk := file.read(min(size, CHUNK))):
            checksum, size = zlib.crc32(chunk, checksum), size - len(chunk)
    return checksum


def _mapped(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Pixels that are read from disk when they are used; what is written to them stays in memory."""
    if not np.prod(shape):
        return np.empty(shape, np.uint8)
    return np.asarray(np.memmap(path, np.uint8, mode="c", shape=shape))
