"""Locks on files, which a process gives back however it ends: one grid to a folder, and turns on a GPU."""

import contextlib
import errno
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

__all__ = ["take", "turn"]

UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
"""What a file system answers that has no locks."""

PATIENCE = 0.1
"""Seconds between two looks at whether a turn has come."""


def take(path: Path) -> TextIO | None:
    """An open file that is a lock until it is closed; None where another holds it.

    Where there are no such locks, nobody is kept waiting: on Windows, and on some file systems of a network.
    """
    file = path.open("w", encoding="utf-8")
    try:
        import fcntl
    except ImportError:
        return file
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            file.close()
            raise
    return file


@contextlib.contextmanager
def turn(folder: Path, at_once: int) -> Iterator[None]:
    """Wait until fewer than ``at_once`` others have a turn by this folder, then have one."""
    while (held := _any_of(folder, at_once)) is None:
        time.sleep(PATIENCE)
    with held:
        yield


def _any_of(folder: Path, at_once: int) -> TextIO | None:
    locks = (take(folder / f".turn-{number}") for number in range(at_once))
    return next((lock for lock in locks if lock is not None), None)
