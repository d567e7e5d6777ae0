"""Atomic writes: a file is written under a temporary name in the same folder, then renamed."""

import errno
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from normatch.annotations import fits
from normatch.errors import UserError
from normatch.locks import take

__all__ = [
    "FULL",
    "alone",
    "checked",
    "kind_of",
    "must_be_free",
    "naming",
    "read_json",
    "read_object",
    "replacing",
    "write_json",
]


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers for a full disk, an exceeded quota and a file above the size that the system allows."""

KINDS: dict[type | tuple[type, ...], str] = {
    dict: "an object",
    list: "a list",
    str: "a text",
    bool: "a truth value",
    (int, float): "a number",
}
"""What JSON's values are called; bool comes before int, which in Python it is."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path to write to, which atomically replaces ``path`` when the block ends.

    A process killed inside the block leaves ``path`` as it was. UserError if another process is writing it: two would
    write over each other.
    """
    part = path.with_name(f".{path.name}.part")
    with alone(part, path), naming(path):
        try:
            yield part
            with part.open("rb") as written:
                os.fsync(written.fileno())
            os.replace(part, path)
        except BaseException:
            # Not after a success: the name may be another process's by then.
            part.unlink(missing_ok=True)
            raise


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Errors of a full disk in the block, which do not name the file, are of ``path``."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL and error.filename is None:
            error.filename = str(path)
        raise


@contextmanager
def alone(part: Path, path: Path) -> Iterator[None]:
    """Create ``part``, which is to become ``path``, and hold its lock for as long as it has that name.

    UserError if another process holds it.
    """
    while True:
        lock = take(part)
        if lock is None:
            raise UserError(f"{path} is being written by another process: wait for it, or choose another name")
        with lock:
            if os.name == "nt":  # without locks, and an open file cannot be renamed
                lock.close()
            # Else it has been renamed between being opened and being locked, and its successor is to be locked.
            elif not _has_name(lock, part):
                continue
            yield
            return


def _has_name(file: TextIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def must_be_free(path: Path, *, force: bool = False) -> None:
    """Raise UserError unless ``path`` can be written and, without ``force``, does not exist yet."""
    if path.is_dir():
        raise UserError(f"{path} is a folder: give the name of a file")
    if path.exists() and not force:
        raise UserError(f"{path} exists already: choose another name, or replace it with --force")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise UserError(f"cannot write {path}: {path.parent} is no folder that can be written to; choose another place")


def write_json(path: Path, value: Any) -> None:
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    with replacing(path) as part:
        # Undecodable bytes of file names (lone surrogates) become escapes, which JSON reads back unchanged.
        part.write_text(text, encoding="utf-8", errors="backslashreplace")


def read_json(path: Path) -> Any:
    """The value in a JSON file; ValueError if it holds none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file; ValueError if it holds something else."""
    return checked(read_json(path), {})


def checked(content: Any, hints: Mapping[str, Any]) -> dict[str, Any]:
    """The content; ValueError if it is no object, or a field of it is missing or of another type."""
    if not isinstance(content, dict):
        raise ValueError(f"it holds {kind_of(content)}, not an object")
    for name, hint in hints.items():
        if name not in content:
            raise ValueError(f"it has no {name}")
        if not fits(content[name], hint):
            raise ValueError(f"{name} is {content[name]!r}")
    return content


def kind_of(content: Any) -> str:
    """What JSON calls a value, with its article.

    >>> kind_of([1]), kind_of(0.5), kind_of(None)
    ('a list', 'a number', 'null')
    """
    for types, name in KINDS.items():
        if isinstance(content, types):
            return name
    return "null"
