"""``predictions.csv`` of a finished run: what its model predicts for each test sample."""

import csv
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
from normatch.text import harmless_cell, read_cell

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
    number = {name.encode(errors=ESCAPE).decode(): k for k, name in enumerate(classes)}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if row["truth"]]
        labels, predicted = ([number[read_cell(row[name])] for row in rows] for name in ("truth", "label"))
        samples, confidence = [int(row["sample"]) for row in rows], [float(row["probability"]) for row in rows]
    except (KeyError, ValueError, TypeError) as error:
        raise UserError(f"{path} cannot be read ({error!r}): restore it or train again") from error
    at, truth, head = (np.array(column, np.int64) for column in (samples, labels, predicted))
    return HeldOutPredictions("test", at, truth, head, np.array(confidence))
