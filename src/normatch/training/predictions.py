"""Write and read ``predictions.csv`` of a finished run: one line per test item."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from normatch.data import Dataset
from normatch.errors import UserError
from normatch.files import replacing
from normatch.text import harmless_cell, read_cell

__all__ = ["PREDICTIONS", "Line", "read_predictions", "write_predictions"]

PREDICTIONS = "predictions.csv"
"""Its name in the run's folder."""

ESCAPE = "backslashreplace"

ITEM, FILE, LABEL, PROBABILITY, TRUTH = "item", "file", "label", "probability", "truth"
"""Its columns, in order. The second exists only if items are files, and not in older runs, so nothing relies on it."""


class Line(NamedTuple):
    """The prediction for a test item whose class is known; classes are numbers."""

    item: int
    label: int
    probability: float
    truth: int


def write_predictions(path: Path, test: Dataset, p: Tensor) -> None:
    """Write one line per test item from the probabilities (N, K), with its file if it has one."""
    names = {FILE: test.files} if test.files is not None else {}
    # Names of files and folders that are not valid text are written with escapes.
    with replacing(path) as part, part.open("w", newline="", encoding="utf-8", errors=ESCAPE) as file:
        table = csv.writer(file)
        table.writerow([ITEM, *names, LABEL, PROBABILITY, TRUTH])
        for i, (probability, k, truth, *name) in enumerate(
            zip(p.amax(1).tolist(), p.argmax(1).tolist(), test.labels, *names.values(), strict=True)
        ):
            known = test.classes[truth] if truth >= 0 else ""
            cells = map(harmless_cell, (*name, test.classes[k]))
            table.writerow([i, *cells, f"{probability:.6f}", harmless_cell(known)])


def read_predictions(path: Path, classes: Sequence[str]) -> list[Line]:
    """The lines of the items whose class is known."""
    number = {name.encode(errors=ESCAPE).decode(): k for k, name in enumerate(classes)}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = csv.DictReader(file)
            _must_have_columns(rows.fieldnames or ())
            known = [row for row in rows if row[TRUTH]]
            classes_of = [[number[read_cell(row[name])] for name in (LABEL, TRUTH)] for row in known]
            return [
                Line(int(row[ITEM]), label, float(row[PROBABILITY]), truth)
                for row, (label, truth) in zip(known, classes_of, strict=True)
            ]
    except (KeyError, ValueError, TypeError) as error:
        raise UserError(f"{path} cannot be read ({error!r}): restore it or train again") from error


def _must_have_columns(names: Sequence[str]) -> None:
    """Raise KeyError for a column that is missing: without a row after it, a damaged heading has no other effect."""
    for name in (ITEM, LABEL, PROBABILITY, TRUTH):
        if name not in names:
            raise KeyError(name)
