"""The predictions of a finished run for its held-out items, and a check that its data is unchanged."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from normatch.data import UNKNOWN, Corpus
from normatch.errors import UserError
from normatch.nets.model import ModelSpec
from normatch.training.predictions import PREDICTIONS, read_predictions
from normatch.training.run import Run

__all__ = [
    "Answers",
    "HeldOut",
    "On",
    "more_than_rounding",
    "must_be_labelled_alike",
    "must_be_the_same",
    "must_fit",
    "must_look_alike",
    "read_answers",
]

HeldOut = Literal["test", "validation"]
"""The kinds of held-out items."""

On = Literal["auto", "test", "validation"]
"""Held-out items to score: ``auto`` is the test set or, if there is none, the validation items."""


@dataclass(frozen=True)
class Answers:
    """Held-out items whose class is known, and the model's predictions for them."""

    which: HeldOut
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
    must_fit(run, corpus, spec)
    run.must_be_its_data(corpus)
    if answers is not None:
        test = corpus.test
        must_be_labelled_alike(run, corpus, test.labels if test is not None else np.zeros(0, np.int64), answers)


def must_fit(run: Run, corpus: Corpus, spec: ModelSpec) -> None:
    """Raise UserError unless the corpus has the classes and the shape that the run's model takes."""
    now, then = corpus.train, spec
    if now.classes != then.classes:
        new, gone = (sorted(set(a) - set(b)) for a, b in ((now.classes, then.classes), (then.classes, now.classes)))
        which = [f"{name!r} is new" for name in new[:1]] + [f"{name!r} is gone" for name in gone[:1]]
        how = ", ".join(which) or "in another order"
        raise UserError(f"{_changed(run, corpus)}: its classes have changed ({how}); restore them")
    if now.shape != then.shape:
        raise UserError(
            f"{_changed(run, corpus)}: its items are of shape {now.shape} now, not {then.shape} (channels or features "
            "come first); restore them"
        )


def must_be_labelled_alike(run: Run, corpus: Corpus, labels: NDArray[np.int64], answers: Answers) -> None:
    """Raise UserError unless the ``labels`` of test items are, where known, those stored with the predictions."""
    if not np.array_equal(labels[labels != UNKNOWN], answers.labels):
        raise UserError(f"{_changed(run, corpus)}: its test items have changed; restore the old ones")


def must_look_alike(run: Run, corpus: Corpus, guess: NDArray[np.int64], answers: Answers) -> None:
    """Raise UserError if more test items than rounding explains are predicted otherwise than when the run ended."""
    others = int((guess != answers.guess).sum())
    if more_than_rounding(others, len(guess)):
        raise UserError(
            f"{_changed(run, corpus)}: {others:,} of its {len(guess):,} test items are predicted otherwise now; "
            "restore them"
        )


def more_than_rounding(others: float, items: int) -> bool:
    """Whether so many predictions differ that another device, which rounds differently, is no reason: a hundredth."""
    return others > max(1, 0.01 * items)


def _changed(run: Run, corpus: Corpus) -> str:
    """The beginning of a sentence on data that is not the run's: it has changed, or other data was given."""
    if os.path.abspath(corpus.name) == os.path.abspath(Path(run.config.data).expanduser()):
        return f"{corpus.name} has changed since {run.path} was trained on it"
    return f"{corpus.name} is not the data that {run.path} was trained on"


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
