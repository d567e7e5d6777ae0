"""Score a finished run on its held-out samples: from its stored predictions, or again from its weights and data."""

from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from normatch.data import UNKNOWN, Corpus, Dataset, Reading
from normatch.data.images import DEFAULT
from normatch.device import Device
from normatch.errors import UserError
from normatch.evaluate.predict import load
from normatch.metrics import scores
from normatch.significance import describe_accuracy
from normatch.text import aligned
from normatch.training.job import corpus_of
from normatch.training.predictions import PREDICTIONS, HeldOutPredictions, read_predictions
from normatch.training.run import STAYED, Moved, Run

__all__ = ["HeldOut", "On", "describe", "evaluate_run", "held_out", "read_held_out"]

HeldOut = Literal["test", "validation"]

On = Literal["auto", "test", "validation"]
"""Held-out samples to score: ``auto`` is the test set or, if there is none, the validation samples."""


def read_held_out(run: Run, classes: tuple[str, ...]) -> HeldOutPredictions | None:
    """The stored predictions for test samples whose class is known; None if there are none."""
    path, result = run.path / PREDICTIONS, run.result
    if not path.is_file():
        return None
    found = read_predictions(path, classes)
    n, counted = len(found.samples), result["n"] if result["evaluated_on"] == "test" else 0
    if n != counted:
        raise UserError(
            f"{path} has {n:,} test samples whose class is known, but result.json counts {counted:,}: restore it"
        )
    return found if n else None


def held_out(run: Run, corpus: Corpus, on: On = "auto") -> tuple[HeldOut, NDArray[np.int64], Dataset]:
    """The held-out samples whose class is known: the test set or, if there is none, the validation samples.

    Returns which of the two, their positions (in the test set or among the training samples), and the samples.
    """
    if on in ("auto", "test") and corpus.test is not None:
        known = np.flatnonzero(corpus.test.labels != UNKNOWN)
        if len(known):
            return "test", known, corpus.test.view(known)
    validation = run.split.validation
    if on in ("auto", "validation") and len(validation):
        return "validation", validation, corpus.train.view(validation)
    if on == "validation":
        raise UserError(f"{run.path} has no validation samples: train with --validation to set some aside")
    held = "labelled test samples" if on == "test" else "held-out samples"
    raise UserError(f"{run.path} has no {held}, and so no accuracy: {run.how_to_test}")


def evaluate_run(
    path: Path, *, on: On = "auto", moved: Moved = STAYED, device: Device = "auto", reading: Reading = DEFAULT
) -> dict[str, Any]:
    """The scores of the averaged weights, without calibration, on held-out samples of the run's data."""
    run, model = Run.open(path), load(path, device, calibrated=False)
    which, _, samples = held_out(run, corpus_of(run, moved, reading), on)
    return {"evaluated_on": which} | scores(model.predict_proba(samples.inputs), samples.labels, samples.classes)


def describe(report: dict[str, Any]) -> str:
    """The scores as text."""
    rows = []
    for of in report["per_class"]:
        recall = f"{of['recall']:.1%}" if of["n"] else "–"  # nothing was measured
        rows.append([f"  {of['name']}", f"n {of['n']:>5}", f"precision {of['precision']:6.1%}", f"recall {recall:>6}"])
    total = describe_accuracy(report["accuracy"], report["n"], report["evaluated_on"])
    means = f"macro-F1 {report['macro_f1']:.2%}, balanced accuracy {report['balanced_accuracy']:.2%}"
    return "\n".join([total, means, *aligned(rows)])
