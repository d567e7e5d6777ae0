"""Write predictions as a table: CSV, or Parquet if pyarrow is installed."""

import csv
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, Protocol

from normatch.bars import counting
from normatch.data import OnBad, find_images, find_items
from normatch.data.ignored import find_ignored, say_ignored
from normatch.errors import UserError
from normatch.evaluate.predictor import Prediction, load
from normatch.files import must_be_free, replacing
from normatch.text import counted

__all__ = ["must_be_a_table", "predict_to", "written"]

SUFFIXES = (".csv", ".parquet")

ROW_GROUP = 65_536


class Write(Protocol):
    """Appends rows to a table."""

    def __call__(self, rows: Sequence[Sequence[Any]]) -> None: ...


def predict_to(
    run: Path,
    inputs: Sequence[Path],
    out: Path | None = None,
    *,
    on_bad: OnBad = "stop",
    batch: int | None = None,
    device: str = "auto",
    force: bool = False,
) -> str:
    """Predict files, folders or an array into a table; return a summary for the user.

    Rows are written as they are predicted; the file ``out`` appears only when it is complete. Without ``out`` the rows
    go to standard output.
    """
    if out is not None:
        must_be_a_table(out, force)
    model = load(run, device)
    items = find_items(inputs, sys.stdin, model.model.spec.shape, on_bad)
    columns = [items.column, *model.fields[1:]]
    told = itemgetter(*map(Prediction._fields.index, model.fields))
    done = 0
    with written(out, columns) as write, counting("predict", len(items)) as progress:
        for rows in model.stream(items, batch):
            write([told(row) for row in rows])
            done += len(rows)
            progress(done)
    skipped = [f"{counted(len(items.skipped), 'unreadable image')} skipped:", *items.skipped] if items.skipped else []
    folders = [place for place in inputs if place.is_dir()]
    ignored = say_ignored(find_ignored(folders, find_images(folders)))
    return "\n".join([f"{counted(done, 'prediction')}: {out or 'standard output'}", *ignored, *skipped])


@contextmanager
def written(out: Path | None, columns: Sequence[str]) -> Iterator[Write]:
    """A function that appends rows to a table in ``out`` or, if that is None, on standard output."""
    if out is None:
        with _csv(sys.stdout, columns) as write:
            yield write
        return
    with replacing(out) as part:
        if out.suffix.lower() == ".csv":
            # File names that are not valid text are written with escapes.
            opened = part.open("w", newline="", encoding="utf-8", errors="backslashreplace")
            with opened as file, _csv(file, columns) as write:
                yield write
        else:
            with _parquet(part, columns) as write:
                yield write


def must_be_a_table(out: Path, force: bool) -> None:
    """Raise UserError unless a table can be written to ``out``; to be called before its rows are computed."""
    if out.suffix.lower() not in SUFFIXES:
        raise UserError(f"out is {out}: give a name that ends in {' or '.join(SUFFIXES)}")
    must_be_free(out, force=force)
    if out.suffix.lower() == ".parquet":
        _pyarrow()


@contextmanager
def _csv(file: IO[str], columns: Sequence[str]) -> Iterator[Write]:
    table = csv.writer(file, lineterminator="\n")
    # The heading is written with the first rows, so that standard output stays empty if an error comes first.
    heading = [columns]

    def write(rows: Sequence[Sequence[Any]]) -> None:
        if heading:
            table.writerow(heading.pop())
        table.writerows(map(_text, row) for row in rows)

    yield write
    write([])


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.6f}" if isinstance(value, float) else str(value)


def _escaped(value: object) -> object:
    """A name of an item or class with invalid text replaced by escapes, as in CSV; anything else as it is."""
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value


@contextmanager
def _parquet(path: Path, columns: Sequence[str]) -> Iterator[Write]:
    pa, pq = _pyarrow()
    texts = ("path", "label", "flow_label", "guess")
    kinds = {"item": pa.int64(), "stands_for": pa.int64(), "agree": pa.bool_()} | dict.fromkeys(texts, pa.string())
    schema = pa.schema([(name, kinds.get(name, pa.float32())) for name in columns])
    waiting: list[tuple[Any, ...]] = []

    def flush() -> None:
        if waiting:
            table.write_table(pa.table([list(values) for values in zip(*waiting, strict=True)], schema=schema))
            waiting.clear()

    def write(rows: Sequence[Sequence[Any]]) -> None:
        waiting.extend(tuple(map(_escaped, row)) for row in rows)
        if len(waiting) >= ROW_GROUP:
            flush()

    with pq.ParquetWriter(path, schema) as table:
        yield write
        flush()


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise UserError(
            "a .parquet file needs pyarrow: pip install 'normatch[parquet]', or write a .csv file"
        ) from error
    return pyarrow, pyarrow.parquet
