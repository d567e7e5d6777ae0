"""Locks on files, which a process gives back however it ends."""

import errno
from pathlib import Path
from typing import TextIO

__all__ = ["take"]

UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
"""What a file system answers that has no locks."""


def take(path: Path) -> TextIO | None:
    """An open file that is a lock until it is closed; None where another holds it. What is in it stays as it is.

    Where there are no such locks (Windows, some network file systems) the file is returned without one.
    """
    file = path.open("a", encoding="utf-8")
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
