"""File locks, which the system releases however the process ends."""

import errno
from pathlib import Path
from typing import TextIO

__all__ = ["take"]

UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
"""Error numbers of a file system without locks."""


def take(path: Path) -> TextIO | None:
    """Lock ``path`` (created if absent, its content unchanged): an open file that holds the lock until it is closed.

    None if another process holds the lock. Without file locks (Windows, some network file systems) the file is
    returned unlocked.
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
