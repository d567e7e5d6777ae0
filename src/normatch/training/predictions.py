"""``predictions.csv`` of a finished run: what its model predicts for each test sample."""

import csv
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from normatch.data import Dataset
from normatch.errors import UserError
from normatch.files import replacing
from normatch.text import harmless_cell

__all__ = ["PREDICTIONS", "HeldOutPredictions", "read_predictions", "write_predictions"]

PREDICTIONS = "predictions.csv"
"""Its name in the run's folder."""

ESCAPE = "backslashreplace"
"""Names of files and classes that are not valid text are written with escapes."""


@dataclass(frozen=True)
class HeldOutPredictions:
    """Held-out samples whose class is known, and what the model predicts for them."""

    which: Literal["test", "validation"]
    samples: NDArray[np.int64]
    """(N,) their positions: in the test set, or among the training samples for validation."""
    labels: NDArray[np.int64]
    predicted: NDArray[np.int64]
    confidence: NDArray[np.float64]

    @property
    def correct(self) -> NDArray[np.bool_]:
        return np.asarray(self.predicted == self.labels)


def write_predictions(path: Path, test: Dataset, p: Tensor) -> None:
    """Write one line per test sample from the probabilities (N, K), with its file if it has one."""
    names = {"file": test.files} if test.files is not None else {}
    with replacing(path) as part, part.open("w", newline="", encoding="utf-8", errors=ESCAPE) as file:
        table = csv.writer(file)
        table.writerow(["sample", *names, "label", "probability", "truth"])
        columns = (p.amax(1).tolist(), p.argmax(1).tolist(), test.labels, *names.values())
        for i, (probability, k, truth, *name) in enumerate(zip(*columns, strict=True)):
            known = test.classes[truth] if truth >= 0 else ""
            cells = map(harmless_cell, (*name, test.classes[k]))
            table.writerow([i, *cells, f"{probability:.6f}", harmless_cell(known)])


def read_predictions(path: Path, classes: Sequence[str]) -> HeldOutPredictions:
    """The predictions for the test samples whose class is known."""
    number = {harmless_cell(name.encode(errors=ESCAPE).decode()): k for k, name in enumerate(classes)}
    samples, labels, predicted, confidence = array("q"), array("q"), array("q"), array("d")
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = csv.reader(file)  # not by name and not kept: a comparison of many runs reads millions of rows
            place = {name: i for i, name in enumerate(next(rows, []))}
            sample, label, probability, truth = (place[name] for name in ("sample", "label", "probability", "truth"))
            for row in rows:
                if row and row[truth]:
                    samples.append(int(row[sample]))
                    labels.append(number[row[truth]])
                    predicted.append(number[row[label]])
                    confidence.append(float(row[probability]))
        if not all(0 <= p <= 1 for p in confidence):
            raise ValueError("a probability is not between 0 and 1")
    except (IndexError, KeyError, OverflowError, ValueError, csv.Error) as error:
        raise UserError(f"{path} cannot be read ({error!r}): restore it or train again") from error
    return HeldOutPredictions("test", *map(np.asarray, (samples, labels, predicted, confidence)))
