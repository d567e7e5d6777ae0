"""The predictions of a finished run for its held-out items, and a check that its data is unchanged."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from normatch.data import UNKNOWN, Corpus
from normatch.engine.predictions import PREDICTIONS, read_predictions
from normatch.engine.run import Run
from normatch.errors import UserError
from normatch.model import ModelSpec

__all__ = ["Answers", "must_be_the_same", "read_answers"]


@dataclass(frozen=True)
class Answers:
    """Held-out items whose class is known, and the model's predictions for them."""

    which: Literal["test", "validation"]
    items: NDArray[np.int64]
    """(N,) their positions: in predictions.csv for a test set, among the training items for validation."""
    labels: NDArray[np.int64]
    guess: NDArray[np.int64]
    confidence: NDArray[np.float64]

    @property
    def correct(self) -> NDArray[np.bool_]:
        return np.asarray(self.guess == self.labels)


def read_answers(run: Run, classes: tuple[str, ...]) -> Answers | None:
    """The predictions in ``predictions.csv`` for test items whose class is known; None if there are none."""
    path = run.path / PREDICTIONS
    if not path.is_file():
        return None
    lines = read_predictions(path, classes)
    _must_be_complete(run, len(lines))
    if not lines:
        return None
    items, guess, confidence, labels = map(np.array, zip(*lines, strict=True))
    return Answers("test", items, labels, guess, confidence)


def must_be_the_same(run: Run, corpus: Corpus, spec: ModelSpec, answers: Answers | None) -> None:
    """Raise UserError if the corpus has changed since the run was trained on it."""
    changed = f"{run.config.data} has changed since {run.path} was trained on it"
    split, train = run.split, corpus.train
    if train.classes != spec.classes or train.shape != spec.shape:
        raise UserError(f"{changed}: its classes or the size of its items are others now; restore them")
    used = np.concatenate([split.labelled, split.unlabelled, split.validation])
    if used.max() >= len(train):
        raise UserError(f"{changed}: it has fewer items now; restore them")
    if not run.has_files_of(corpus):
        raise UserError(f"{changed}: its labelled, validation or test files have other names now; restore them")
    if answers is not None:
        test = corpus.test
        known = test.labels[test.labels != UNKNOWN] if test is not None else np.zeros(0, dtype=np.int64)
        if not np.array_equal(known, answers.labels):
            raise UserError(f"{changed}: its test items are others now; restore them")


def _must_be_complete(run: Run, lines: int) -> None:
    """Raise UserError if ``predictions.csv`` has another number of items of known class than the result counts."""
    # The result is written last: while it is missing, eval can still score the weights.
    if not run.finished:
        return
    result = run.result
    counted = result["n"] if result["evaluated_on"] == "test" else 0
    if lines != counted:
        raise UserError(
            f"{run.path / PREDICTIONS} has {lines:,} test items whose class is known, but result.json counts "
            f"{counted:,}: restore it"
        )
