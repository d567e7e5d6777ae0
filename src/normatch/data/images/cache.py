"""A cache of decoded images: one file per list of image files and per form (H, W, C) they were decoded to.

An entry is the pixels (N, H, W, C) as raw bytes; then a row of facts for each image; then a JSON object with the shape,
the files and which of them are unreadable; then a tail of fixed length with the JSON's length and checksum. It is
written under a temporary name and renamed, so it is whole or absent, and its checksums are verified whenever it is
opened. A new entry takes the pixels of files that have not changed from an older one, and replaces it if it has all of
its files that are still there.
"""

import datetime
import hashlib
import json
import os
import secrets
import struct
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from normatch.data.images.decode import VERSION, Form
from normatch.data.images.facts import FACTS
from normatch.errors import UserError, reason
from normatch.locks import take
from normatch.text import counted

__all__ = ["Cache", "CacheError", "Entry", "Part", "Rows", "cache_folder", "describe_cache", "files_of"]

SUFFIX, PART = ".decoded", ".part"
TAIL = struct.Struct("<QI8s")
"""Length and checksum of the JSON, and the mark that ends every entry."""
MARK = b"normatch"
CHUNK = 1 << 20
ABANDONED = 60.0
"""Seconds without writing after which an unlocked partial file was left by a killed process: not every file system has
locks."""

Rows = NDArray[np.int64]
"""For each listed file, the row of its image in an entry, −1 if it has none."""


def cache_folder() -> Path:
    """Where decoded images are kept: ``$NORMATCH_CACHE``, or ``~/.cache/normatch/decoded``."""
    return Path(os.environ.get("NORMATCH_CACHE") or "~/.cache/normatch/decoded").expanduser()


@dataclass(frozen=True)
class Entry:
    """The readable images of a list and their facts; ``bad`` maps the positions of unreadable files to the reasons."""

    images: NDArray[np.uint8]
    facts: NDArray[Any]
    bad: dict[int, str]


class CacheError(UserError):
    """Decoded images cannot be kept, which says nothing about the images."""


class Cache:
    """The cache entries in one folder."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or cache_folder()

    def key(self, paths: Sequence[Path]) -> str:
        """The key of a list of files in their present state; it changes with any path, size, time or their order."""
        digest = hashlib.blake2b(_decoder(), digest_size=16)
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
        """The facts of the listed images, from an entry of any form; None unless they are known for every file.

        An entry with unreadable files does not count: it lacks their facts, but their headers may affect the form.
        """
        for path in sorted(self.folder.glob(f"{key}-*{SUFFIX}")):
            metadata = _read_metadata(path)
            if metadata is not None and not metadata.bad:
                return metadata.facts
        return None

    def open(self, key: str, form: Form) -> Entry | None:
        """The entry, memory-mapped; None if it is absent or damaged."""
        return _open(self._path(key, form), form)

    def known(self, states: Sequence[int], form: Form) -> tuple[Entry, Rows]:
        """The entry that has most of the files in these states, under whatever path, and the row of each; an entry
        without rows if none has any."""
        found: list[tuple[int, Path, Rows]] = []
        for path, metadata in self._entries(form):
            rows = np.array([metadata.rows.get(state, -1) for state in states], np.int64)
            found += [(int((rows >= 0).sum()), path, rows)] if (rows >= 0).any() else []
        for _, path, rows in sorted(found, key=lambda one: one[0], reverse=True):
            if entry := _open(path, form):
                return entry, rows
        return Entry(np.empty((0, *form), np.uint8), np.zeros(0, FACTS), {}), np.full(len(states), -1)

    @contextmanager
    def writing(self, key: str, form: Form) -> Iterator["Part"]:
        """A new entry to write; it is discarded unless :meth:`Part.finish` is called."""
        path = self._path(key, form)
        part = path.with_name(f".{path.name}.{secrets.token_hex(8)}{PART}")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                with part.open("wb") as file, take(part) or nullcontext():
                    yield Part(path, part, file, form)
            finally:
                part.unlink(missing_ok=True)
            self._tidy(path, form)
        except OSError as error:
            raise CacheError(
                f"cannot write decoded images to {self.folder}: {reason(error)}; "
                "set NORMATCH_CACHE to another folder, or give --no-cache"
            ) from error

    def listing(self) -> list[dict[str, Any]]:
        """One object per entry: ``file``, ``bytes``, ``written`` and, unless it is damaged, ``images``, ``shape``,
        ``source``; and one per partial file that a killed process left, with ``partial``."""
        rows = []
        for path in [*sorted(self.folder.glob(f"*{SUFFIX}")), *self._abandoned()]:
            metadata, found = _read_metadata(path), path.stat()
            written = datetime.datetime.fromtimestamp(found.st_mtime, datetime.UTC).isoformat(timespec="seconds")
            row: dict[str, Any] = {"file": str(path), "bytes": found.st_size, "written": written}
            if path.suffix == PART:
                row["partial"] = True
            elif metadata is not None:
                row |= {"images": metadata.shape[0], "shape": list(metadata.shape[1:]), "source": metadata.source}
            rows.append(row)
        return rows

    def clear(self) -> list[dict[str, Any]]:
        """Delete all that :meth:`listing` shows, and return that."""
        rows = self.listing()
        for row in rows:
            Path(row["file"]).unlink(missing_ok=True)
        return rows

    def _tidy(self, new: Path, form: Form) -> None:
        """Delete what killed processes left, and older entries that ``new`` replaces."""
        entries = dict(self._entries(form))
        here = {state for _, state in entries[new].files} if new in entries else set()
        older = [path for path, metadata in entries.items() if path != new and metadata.is_replaced_by(here)]
        for path in [*older, *self._abandoned(ABANDONED)]:
            with suppress(OSError):  # another process has it open (Windows), or was faster
                path.unlink()

    def _abandoned(self, seconds: float = 0.0) -> list[Path]:
        """The partial files that no process is writing, nor has written for so long."""
        found = []
        for path in sorted(self.folder.glob(f".*{SUFFIX}.*{PART}")):
            with suppress(OSError):  # another process was faster, or it is another user's
                if time.time() - path.stat().st_mtime >= seconds and (lock := take(path)):
                    lock.close()
                    found.append(path)
        return found

    def _entries(self, form: Form) -> Iterator[tuple[Path, "_Metadata"]]:
        for path in sorted(self.folder.glob(self._path("*", form).name)):
            metadata = _read_metadata(path)
            if metadata is not None:
                yield path, metadata

    def _path(self, key: str, form: Form) -> Path:
        return self.folder / f"{key}-{'x'.join(map(str, form))}{SUFFIX}"


def describe_cache(folder: Path, rows: list[dict[str, Any]], *, cleared: bool) -> str:
    """The rows of :meth:`Cache.listing` as text."""
    lines = []
    for row in rows:
        what = f"{row['images']:,} × {'×'.join(map(str, row['shape']))}" if "images" in row else "damaged"
        what = "left by a killed process" if "partial" in row else what
        lines.append(f"{row['bytes'] / 1e6:>10,.1f} MB  {row['written'][:10]}  {what}  {row.get('source', '')}")
    total = sum(row["bytes"] for row in rows) / 1e6
    verb = "deleted" if cleared else "in all"
    return "\n".join([*lines, f"{total:>10,.1f} MB  {verb}, {counted(len(rows), 'entry', 'entries')}: {folder}"])


class Part:
    """A cache entry that is being written: append pixels, then :meth:`finish` with the rest."""

    def __init__(self, path: Path, part: Path, file: BinaryIO, form: Form) -> None:
        self._path, self._part, self._file, self._form = path, part, file, form
        self._images = self._checksum = 0

    def append(self, images: NDArray[np.uint8]) -> None:
        self._images += len(images)
        self._checksum = zlib.crc32(images.data, self._checksum)
        self._file.write(images.data)

    def finish(
        self, files: Sequence[tuple[str, int]], facts: NDArray[Any], bad: dict[int, str], *, source: str, keep: bool
    ) -> Entry:
        """Complete the entry of ``files``, each with the state in which it was decoded: with ``keep`` rename it into
        place and map it, else read it back into memory."""
        shape = (self._images, *self._form)
        rows = facts.tobytes()
        text = json.dumps(
            {
                "shape": shape,
                "bad": bad,
                "checksum": self._checksum,
                "facts_checksum": zlib.crc32(rows),
                "source": source,
                "files": files,
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
class _Metadata:
    """The metadata that follows the pixels in an entry."""

    shape: tuple[int, int, int, int]
    facts: NDArray[Any]
    bad: dict[int, str]
    checksum: int
    source: str
    files: list[tuple[str, int]]
    """The path and the state of each file, readable or not."""

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))

    @cached_property
    def rows(self) -> dict[int, int]:
        """The row of each readable file by its state; not of one that was absent when its state was asked for."""
        readable = (state for i, (_, state) in enumerate(self.files) if i not in self.bad)
        return {state: row for row, state in enumerate(readable) if state}

    def is_replaced_by(self, states: set[int]) -> bool:
        """Whether an entry of files in these states has some of its files, and all that are still as they were."""
        others = [(path, state) for path, state in self.files if state and state not in states]
        shares = any(state in states for _, state in self.files if state)
        return shares and set(others).isdisjoint(files_of(path for path, _ in others))


def files_of(paths: Iterable[Path | str]) -> list[tuple[str, int]]:
    """Each file's absolute path and state, a number that a move to another folder leaves as it is, 0 if it is absent.

    It changes with the name, size, time or inode of the file, and with the decoder.
    """
    here, decoder = os.getcwd(), _decoder()
    found = []
    for path in paths:
        absolute = os.path.join(here, path)
        try:
            seen = os.stat(absolute)
            words = [os.path.basename(absolute), seen.st_size, seen.st_mtime_ns, seen.st_dev, seen.st_ino]
            text = "\0".join(map(str, [*words, os.access(absolute, os.R_OK)])).encode(errors="surrogateescape")
            state = int.from_bytes(hashlib.blake2b(decoder + text, digest_size=8).digest(), "little")
        except OSError:
            state = 0
        found.append((absolute, state))
    return found


def _decoder() -> bytes:
    from PIL import __version__ as pillow

    return f"{VERSION} {pillow}".encode()


def _open(path: Path, form: Form) -> Entry | None:
    metadata = _read_metadata(path)
    try:
        if metadata is None or metadata.shape[1:] != form or _checksum(path, metadata.size) != metadata.checksum:
            return None
        return Entry(_mapped(path, metadata.shape), metadata.facts, metadata.bad)
    except FileNotFoundError:  # another process has just replaced it
        return None


def _read_metadata(path: Path) -> _Metadata | None:
    """The metadata of an entry; None if there is no entry or its metadata are damaged."""
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
    files = [(path, state) for path, state in value.get("files", ())]  # earlier versions stored none
    return _Metadata(shape, np.frombuffer(facts, FACTS), bad, value["checksum"], value["source"], files)


def _checksum(path: Path, size: int) -> int:
    # Read instead of mapped: mapped pages would count as memory of this process.
    checksum = 0
    with path.open("rb") as file:
        while size and (chunk := file.read(min(size, CHUNK))):
            checksum, size = zlib.crc32(chunk, checksum), size - len(chunk)
    return checksum


def _mapped(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """The pixels as a copy-on-write memory map: read from disk when used; writes stay in memory."""
    if not np.prod(shape):
        return np.empty(shape, np.uint8)
    return np.asarray(np.memmap(path, np.uint8, mode="c", shape=shape))
