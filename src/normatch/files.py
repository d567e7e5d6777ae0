"""Atomic writes, and JSON files that are checked when they are read."""

import errno
import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from normatch.annotations import fits
from normatch.errors import UserError

__all__ = [
    "FULL",
    "PARTS",
    "alone",
    "checked",
    "must_be_free",
    "naming",
    "read_json",
    "read_object",
    "read_sealed",
    "replacing",
    "write_json",
    "write_sealed",
]

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers for a full disk, an exceeded quota and a file above the size that the system allows."""

PARTS = ".*.part"
"""Matches the temporary names of files: a process that was killed leaves such a file."""

SEAL = "sha256"
"""The field of a sealed JSON file that has the digest of all others."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path to write to, which atomically replaces ``path`` when the block ends.

    A process killed inside the block leaves ``path`` as it was. The temporary name is new and cannot be guessed, so
    that nobody can put a link to another file there.
    """
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    with naming(path):
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        try:
            yield part
            with part.open("rb") as written:
                os.fsync(written.fileno())
            os.replace(part, path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Errors of a full disk in the block, which do not name the file, and of its temporary name are of ``path``."""
    try:
        yield
    except OSError as error:
        if (error.errno in FULL and error.filename is None) or ".part" in str(error.filename):
            error.filename = str(path)
        raise


@contextmanager
def alone(lock: Path, busy: str) -> Iterator[None]:
    """Hold a lock, which the system releases however the process ends; UserError ``busy`` if another process does."""
    held = FileLock(lock, timeout=0)
    try:
        held.acquire()
    except Timeout:
        raise UserError(busy) from None
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP):  # a file system without locks
            raise
    try:
        yield
    finally:
        held.release()


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


def write_sealed(path: Path, value: dict[str, Any]) -> None:
    """Write a JSON object with a digest of its content."""
    write_json(path, {SEAL: _seal(value)} | value)


def read_sealed(path: Path) -> dict[str, Any]:
    """The object without its digest; ValueError if the content is not that of the digest. It need not have one."""
    content = read_object(path)
    seal = content.pop(SEAL, None)
    if seal not in (None, _seal(content)):
        raise ValueError(f"it was changed: its {SEAL} is of other content; after a change on purpose, remove that line")
    return content


def _seal(value: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def checked(content: Any, hints: Mapping[str, Any]) -> dict[str, Any]:
    """The content; ValueError if it is no object, or a field of it is missing or of another type."""
    if not isinstance(content, dict):
        raise ValueError("it is no JSON object")
    for name, hint in hints.items():
        if name not in content:
            raise ValueError(f"it has no {name}")
        if not fits(content[name], hint):
            raise ValueError(f"{name} is {content[name]!r}")
    return content
