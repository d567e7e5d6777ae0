"""Files that are either whole or not there: written beside their place, then renamed."""

import csv
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from normatch.errors import UserError, reason

__all__ = ["read_json", "replacing", "write_json", "writing_table"]


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
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def writing_table(path: Path | None, columns: Sequence[str]) -> Iterator[Callable[[Sequence[Mapping[str, str]]], None]]:
    """A function that writes rows as CSV to ``path``, whole or not at all, or to standard output.

    That the file can be written is tried first, before the work that gives the rows.
    """

    def write(file: TextIO, rows: Sequence[Mapping[str, str]]) -> None:
        table = csv.DictWriter(file, columns)
        table.writeheader()
        table.writerows(rows)

    if path is None:
        yield partial(write, sys.stdout)
        return
    try:
        with replacing(path) as part, part.open("w", newline="", encoding="utf-8") as file:
            yield partial(write, file)
    except OSError as error:
        raise UserError(f"cannot write {path}: {reason(error)}; choose another file") from error


def write_json(path: Path, value: Any) -> None:
    with replacing(path) as part:
        part.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
