"""A cache of decoded images: one folder per list of image files and form (H, W, C), with the pixels to be mapped.

An entry has ``pixels`` (raw bytes), ``facts.npy`` and ``entry.json`` (shape, unreadable files, checksum). It is written
under a temporary name and renamed, so it is whole or absent, and readable for its owner alone. Its key covers the path,
size and time of every file and the version of the decoder.
"""

import hashlib
import json
import os
import shutil
import tempfile
import time
import zlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from normatch.data.images.decode import VERSION, Form
from normatch.errors import UserError, reason

__all__ = ["Cache", "CacheError", "Entry", "cache_folder"]

PART = ".part-"
"""The beginning of temporary names."""

KEPT = 8
"""Entries that are kept, those used last."""

ABANDONED = 60.0
"""Seconds without writing after which a temporary folder was left by a killed process. There are no locks: not every
file system has them."""

CHUNK = 1 << 24


def cache_folder() -> Path:
    """Where decoded images are kept: ``$NORMATCH_CACHE``, or ``~/.cache/normatch/decoded``."""
    return Path(os.environ.get("NORMATCH_CACHE") or "~/.cache/normatch/decoded").expanduser()


@dataclass(frozen=True)
class Entry:
    """The readable images of a list and their facts; ``bad`` maps the positions of unreadable files to the reasons."""

    images: NDArray[np.uint8]
    facts: NDArray[Any]
    bad: dict[int, str]
    lasting: bool = True
    """Whether the reasons are properties of the files themselves."""


class CacheError(UserError):
    """Decoded images cannot be kept, which says nothing about the images."""


class Cache:
    """The cache entries in one folder."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or cache_folder()

    def key(self, paths: Sequence[Path]) -> str:
        """The key of a list of files in their present state; it changes with any path, size, time or their order."""
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
        """The facts of the listed images, from an entry of any form; None unless they are known for every file.

        An entry with unreadable files does not count: it lacks their facts, but their headers may affect the form.
        """
        found = filter(None, map(_metadata, sorted(self.folder.glob(f"{key}-*"))))
        return next((facts for about, facts in found if not about["bad"]), None)

    def open(self, key: str, form: Form) -> Entry | None:
        """The entry, memory-mapped; None if it is absent or damaged."""
        path = self._path(key, form)
        found = _metadata(path)
        if found is None:
            return None
        about, facts = found
        checksum = 0
        try:
            with (path / "pixels").open("rb") as file:
                # Read instead of mapped: mapped pages would count as memory of this process.
                while chunk := file.read(CHUNK):
                    checksum = zlib.crc32(chunk, checksum)
            if checksum != about["pixels"]:
                return None
            os.utime(path)
            images = _mapped(path / "pixels", about["shape"])
        except OSError:  # another process has just deleted it
            return None
        return Entry(images, facts, {int(i): why for i, why in about["bad"].items()})

    def write(self, key: str, form: Form, pieces: Iterable[Entry]) -> Entry:
        """All pieces as one entry. If a reason may be gone the next time, it is not kept, only read back."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._keep(KEPT - 1)
            place = Path(tempfile.mkdtemp(prefix=PART, dir=self.folder))  # of mode 0700
            try:
                return self._write(place, self._path(key, form), form, pieces)
            finally:
                shutil.rmtree(place, ignore_errors=True)
        except OSError as error:
            raise CacheError(
                f"cannot write decoded images to {self.folder}: {reason(error)}; "
                "set NORMATCH_CACHE to another folder, or give --no-cache"
            ) from error

    def _write(self, place: Path, path: Path, form: Form, pieces: Iterable[Entry]) -> Entry:
        facts: list[NDArray[Any]] = []
        bad: dict[int, str] = {}
        checksum, lasting = 0, True
        with (place / "pixels").open("wb") as file:
            for piece in pieces:
                checksum = zlib.crc32(piece.images.data, checksum)
                file.write(piece.images.data)
                facts.append(piece.facts)
                bad |= piece.bad
                lasting &= piece.lasting
            file.flush()
            os.fsync(file.fileno())
        whole = np.concatenate(facts)
        shape = (len(whole), *form)
        if not lasting:
            return Entry(np.fromfile(place / "pixels", np.uint8).reshape(shape), whole, bad, lasting)
        np.save(place / "facts.npy", whole)
        about = {"shape": shape, "bad": bad, "pixels": checksum}
        (place / "entry.json").write_text(json.dumps(about | {"checksum": _checksum(about, whole)}))
        # Mapped first: another process that makes the same entry may delete this one at once.
        images = _mapped(place / "pixels", shape)
        shutil.rmtree(path, ignore_errors=True)  # damaged, or of an equally fast process
        with suppress(OSError):
            os.rename(place, path)
        return Entry(images, whole, bad)

    def entries(self) -> list[Path]:
        """All entries, those used last first."""
        found = self.folder.glob(f"{'[0-9a-f]' * 32}-*x*x*")
        return sorted(found, key=_last_used, reverse=True)

    def size(self) -> int:
        """Bytes of all entries."""
        return sum(file.stat().st_size for path in self.entries() for file in path.rglob("*"))

    def clear(self) -> None:
        """Delete all entries."""
        self._keep(0)

    def _keep(self, n: int) -> None:
        """Delete all but the ``n`` entries that were used last, and what killed processes left."""
        parts = self.folder.glob(f"{PART}*")
        left = [part for part in parts if time.time() - _last_used(part / "pixels") > ABANDONED]
        for path in [*self.entries()[n:], *left]:
            shutil.rmtree(path, ignore_errors=True)

    def _path(self, key: str, form: Form) -> Path:
        return self.folder / f"{key}-{'x'.join(map(str, form))}"


def _metadata(path: Path) -> tuple[dict[str, Any], NDArray[Any]] | None:
    """What an entry has besides pixels; None if it is absent or damaged."""
    try:
        about, facts = json.loads((path / "entry.json").read_text()), np.load(path / "facts.npy")
        return (about, facts) if about.pop("checksum") == _checksum(about, facts) else None
    except Exception:  # anything, if it is damaged
        return None


def _checksum(about: dict[str, Any], facts: NDArray[Any]) -> int:
    return zlib.crc32(json.dumps(about).encode(), zlib.crc32(facts.tobytes()))


def _last_used(path: Path) -> float:
    """When ``path`` was last written or opened; now if another process has just deleted it."""
    try:
        return path.stat().st_mtime
    except OSError:
        return time.time()


def _mapped(path: Path, shape: Sequence[int]) -> NDArray[np.uint8]:
    """The pixels as a copy-on-write memory map: read from disk when used; writes stay in memory."""
    if not np.prod(shape):
        return np.empty(shape, np.uint8)
    return np.asarray(np.memmap(path, np.uint8, mode="c", shape=tuple(shape)))
