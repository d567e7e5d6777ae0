"""Locks on files, which a process gives back however it ends."""

from pathlib import Path
from typing import TextIO

__all__ = ["take"]


def take(path: Path) -> TextIO | None:
    """An open file that is a lock until it is closed; None where another holds it. What is in it stays as it is."""
    file = path.open("a", encoding="utf-8")
    try:
        import fcntl
    except ImportError:  # Windows has no such locks: there nobody is kept waiting.
        return file
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    except OSError:  # Nor have some network file systems.
        pass
    return file
