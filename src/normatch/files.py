"""Files that are either whole or not there: written beside their place, then renamed."""

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from normatch.errors import UserError

__all__ = ["FULL", "must_be_free", "read_json", "replacing", "write_json"]


FULL = (errno.ENOSPC, errno.EDQUOT)
"""What a system says when there is no room left, on the disk or for this user."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to, which takes the place of ``path`` at once when the block ends, and not before.

    A process killed inside the block leaves ``path`` as it was.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        yield part
        with part.open("rb") as written:
            os.fsync(written.fileno())
        os.replace(part, path)
    except OSError as error:
        # A disk that is full does not say which file there was no room for.
        if error.errno in FULL and error.filename is None:
            error.filename = str(path)
        raise
    finally:
        part.unlink(missing_ok=True)


def must_be_free(path: Path, *, force: bool = False) -> None:
    """Raise UserError unless ``path`` can be written and, without ``force``, nothing is there yet."""
    if path.is_dir():
        raise UserError(f"{path} is a folder: give the name of a file")
    if path.exists() and not force:
        raise UserError(f"{path} exists already: choose another --out, or replace it with --force")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise UserError(f"cannot write {path}: {path.parent} is no folder that can be written to; choose another place")


def write_json(path: Path, value: Any) -> None:
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    with replacing(path) as part:
        # Bytes of a file's name that are no text become escapes, which JSON has and reads back as they were.
        part.write_text(text, encoding="utf-8", errors="backslashreplace")


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
