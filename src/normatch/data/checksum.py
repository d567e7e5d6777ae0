"""Verify that a file is the published one, by the md5 of its site or of a checksum file next to it."""

import hashlib
import re
from pathlib import Path

from normatch.data.source import Archive
from normatch.errors import UserError

__all__ = ["md5_of", "verify"]


def md5_of(path: Path) -> str:
    with path.open("rb") as file:
        # With usedforsecurity=False, hashlib has md5 even where a FIPS policy forbids it.
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def verify(path: Path, archive: Archive, name: str) -> None:
    """Raise :class:`UserError` unless ``path`` is the file its site publishes for the data set ``name``.

    For a repacked archive, put its checksum into ``<file>.md5`` next to it, as written by ``md5sum FILE > FILE.md5``:
    it then replaces the published one.
    """
    sidecar = path.with_name(path.name + ".md5")
    again = f"delete it and run `normatch data get {name}`"
    if sidecar.is_file():
        expected: str | None = _read_md5(sidecar)
        source = f"{sidecar.name} states"
    else:
        expected, source = archive.md5, "is published"
    if expected is None:
        return
    actual, size = md5_of(path), path.stat().st_size
    if actual != expected:
        if archive.size is not None and size < archive.size and not sidecar.is_file():
            raise UserError(f"{path} is truncated: it has {size:,} of {archive.size:,} bytes; {again}")
        raise UserError(
            f"{path} has a wrong checksum: its md5 is {actual}, but {expected} {source}; {again}, "
            f"or, if you packed it yourself, run `md5sum {path.name} > {sidecar.name}` in its folder"
        )


def _read_md5(sidecar: Path) -> str:
    found = re.search(r"\b[0-9a-fA-F]{32}\b", sidecar.read_text(errors="replace"))
    if found is None:
        raise UserError(
            f"{sidecar} states no md5: write it with `md5sum {sidecar.stem} > {sidecar.name}`, or delete it"
        )
    return found.group().lower()
