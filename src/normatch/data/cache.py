"""A cache of decoded images: one folder per list of image files and form (H, W, C), with the pixels to be mapped.

An entry has ``pixels`` (raw bytes) and ``about.npz`` (facts, unreadable files, checksum of the pixels). It is written
under a temporary name and renamed, so it is whole or absent, and readable for its owner alone. Its key covers the path,
size and time of every file and the version of the decoder.
"""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from normatch.errors import UserError, reason

__all__ = ["Cache", "CacheError", "Decoded", "Form", "Found"]

VERSION = 4
"""Version of the decoding: part of the keys, so increment it when decoded pixels, facts or the entries change."""

PART = ".part-"
"""The beginning of temporary names."""

KEPT = 8
"""Entries that are kept, those used last."""

ABANDONED = 60.0
"""Seconds without writing after which a temporary folder was left by a killed process. There are no locks: not every
file system has them."""

Form = tuple[int, int, int]
"""(H, W, C) of the decoded images."""

Found = tuple[NDArray[Any], dict[int, str], bool]
"""Facts of the readable files, why others cannot be read, and whether these will stay so."""


@dataclass(frozen=True)
class Decoded:
    """The readable images (N, H, W, C) of a list of files, and their facts; ``bad`` says why others cannot be read, by
    position in the list."""

    images: NDArray[np.uint8]
    facts: NDArray[Any]
    bad: dict[int, str]

    @property
    def kept(self) -> NDArray[np.int64]:
        """The positions of the readable files in the list."""
        return np.delete(np.arange(len(self.images) + len(self.bad)), list(self.bad))


class CacheError(UserError):
    """Decoded images cannot be kept, which says nothing about the images."""


class Cache:
    """The entries in ``$NORMATCH_CACHE``, or ``~/.cache/normatch/decoded``."""

    def __init__(self) -> None:
        self.folder = Path(os.environ.get("NORMATCH_CACHE") or "~/.cache/normatch/decoded").expanduser()

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
        for path in sorted(self.folder.glob(f"{key}-*")):
            with suppress(Exception):  # anything, if it is damaged
                facts, bad, _ = _about(path)
                if not bad:
                    return facts
        return None

    def open(self, key: str, form: Form) -> Decoded | None:
        """The entry, memory-mapped; None if it is absent or damaged."""
        path = self._path(key, form)
        with suppress(Exception):  # nearly anything if it is damaged, or just deleted by another process
            facts, bad, digest = _about(path)
            if _digest(path / "pixels") == digest:
                os.utime(path)
                return Decoded(_mapped(path / "pixels", (len(facts), *form)), facts, bad)
        return None

    def write(self, key: str, form: Form, decode: Callable[[IO[bytes]], Found]) -> Decoded:
        """Make an entry of the pixels that ``decode`` writes to a file; it is kept if unreadable files will stay so."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.keep(KEPT - 1)
            with TemporaryDirectory(prefix=PART, dir=self.folder, ignore_cleanup_errors=True) as name:  # of mode 0700
                place = Path(name)
                with (place / "pixels").open("wb") as file:
                    facts, bad, lasting = decode(file)
                    file.flush()
                    os.fsync(file.fileno())
                # Mapped first: another process that makes the same entry may delete this one at once.
                images = _mapped(place / "pixels", (len(facts), *form))
                if lasting:
                    digest = _digest(place / "pixels")
                    np.savez(place / "about.npz", facts=facts, bad=np.array(json.dumps(bad)), pixels=np.array(digest))
                    shutil.rmtree(self._path(key, form), ignore_errors=True)  # damaged, or of an equally fast process
                    with suppress(OSError):
                        os.rename(place, self._path(key, form))
        except OSError as error:
            raise CacheError(
                f"cannot write decoded images to {self.folder}: {reason(error)}; "
                "set NORMATCH_CACHE to another folder, or give --no-cache"
            ) from error
        return Decoded(images, facts, bad)

    def entries(self) -> list[Path]:
        """All entries, those used last first."""
        return sorted(self.folder.glob(f"{'[0-9a-f]' * 32}-*x*x*"), key=_last_used, reverse=True)

    def size(self) -> int:
        """Bytes of all entries."""
        return sum(file.stat().st_size for path in self.entries() for file in path.rglob("*"))

    def keep(self, n: int) -> None:
        """Delete all but the ``n`` entries that were used last, and what killed processes left."""
        parts = self.folder.glob(f"{PART}*")
        left = [part for part in parts if time.time() - _last_used(part / "pixels") > ABANDONED]
        for path in [*self.entries()[n:], *left]:
            shutil.rmtree(path, ignore_errors=True)

    def _path(self, key: str, form: Form) -> Path:
        return self.folder / f"{key}-{'x'.join(map(str, form))}"


def _about(path: Path) -> tuple[NDArray[Any], dict[int, str], str]:
    """Facts, unreadable files and the digest of the pixels. The zip format has a checksum of each."""
    # Opened here, because NumPy does not close a file that it cannot read.
    with (path / "about.npz").open("rb") as content, np.load(content) as file:
        bad = json.loads(str(file["bad"]))
        return file["facts"], {int(i): why for i, why in bad.items()}, str(file["pixels"])


def _digest(path: Path) -> str:
    with path.open("rb") as file:  # not mapped: mapped pages would count as memory of this process
        return hashlib.file_digest(file, "blake2b").hexdigest()


def _last_used(path: Path) -> float:
    """When ``path`` was last written or opened; now if another process has just deleted it."""
    try:
        return path.stat().st_mtime
    except OSError:
        return time.time()


def _mapped(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """The pixels as a copy-on-write memory map: read from disk when used; writes stay in memory."""
    return np.asarray(np.memmap(path, np.uint8, mode="c", shape=shape)) if np.prod(shape) else np.empty(shape, np.uint8)
