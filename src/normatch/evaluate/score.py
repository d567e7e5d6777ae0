"""Score a finished run again, from its files and its data."""

from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from normatch.data import UNKNOWN, Corpus, Dataset, Reading
from normatch.data.images import DEFAULT
from normatch.device import Device
from normatch.errors import UserError
from normatch.evaluate.answers import (
    HeldOut,
    On,
    more_than_rounding,
    must_be_labelled_alike,
    must_be_the_same,
    must_fit,
    read_answers,
)
from normatch.evaluate.metrics import scores
from normatch.evaluate.predict import load
from normatch.significance import describe_accuracy
from normatch.text import on_one_line
from normatch.training.job import open_corpus, with_test_set
from normatch.training.run import STAYED, Moved, Run

__all__ = ["describe", "held_out", "score_run", "unlike_before"]


def score_run(
    path: Path,
    *,
    on: On = "auto",
    moved: Moved = STAYED,
    device: Device = "auto",
    reading: Reading = DEFAULT,
) -> dict[str, Any]:
    """The scores of the averaged weights on held-out items: the test set or, if there is none, validation items."""
    run = Run.open(path)
    config = moved.applied_to(run.config.replace(device=device))
    model = load(path, device, calibrated=False)
    corpus = with_test_set(config, open_corpus(config, reading), run)
    answers = read_answers(run, model.classes)
    named = _held_out_files(run, corpus, on)
    if named is None:
        must_be_the_same(run, corpus, model.model.spec, answers)
        which, _, items = held_out(run, corpus, on)
    else:
        must_fit(run, corpus, model.model.spec)
        which, items = named
        if which == "test" and answers is not None:
            must_be_labelled_alike(run, corpus, items.labels, answers)
    return {"evaluated_on": which} | scores(model.predict_proba(items.inputs), items.labels, items.classes)


def _held_out_files(run: Run, corpus: Corpus, on: On) -> tuple[HeldOut, Dataset] | None:
    """Which files the run held out, and these with their class, wherever in the corpus they are now.

    A new label moves the positions of other files and even draws another test set, but the run's own files are still
    there. None if items are not files, if one of the files is gone, or if none has a class.
    """
    parts = [part for part in (corpus.train, corpus.test) if part is not None]
    places = {name: (part, i) for part in parts if part.files is not None for i, name in enumerate(part.files)}
    which: HeldOut
    for which in get_args(HeldOut):
        names = run.files.get(which, []) if on in ("auto", which) else []
        if any(name not in places for name in names):
            return None
        items = [(part.inputs[i], part.labels[i]) for part, i in map(places.__getitem__, names)]
        known = [item for item in items if item[1] != UNKNOWN]
        if known:
            inputs, labels = zip(*known, strict=True)
            return which, Dataset(np.stack(inputs), np.array(labels, np.int64), corpus.train.classes)
    return None


def describe(report: dict[str, Any]) -> str:
    """The scores as text."""
    names = [on_one_line(entry["name"]) for entry in report["per_class"]]
    width = max(map(len, names))
    lines = [
        describe_accuracy(report["accuracy"], report["n"], report["evaluated_on"]),
        f"macro-F1 {report['macro_f1']:.2%}, balanced accuracy {report['balanced_accuracy']:.2%}",
    ]
    lines += [
        f"  {name:<{width}}  n {entry['n']:>5}  precision {entry['precision']:6.1%}  recall {_recall(entry):>6}"
        for name, entry in zip(names, report["per_class"], strict=True)
    ]
    return "\n".join(lines)


def _recall(entry: dict[str, Any]) -> str:
    """A dash for a class without test items: nothing was measured."""
    return f"{entry['recall']:.1%}" if entry["n"] else "–"


def unlike_before(path: Path, report: dict[str, Any]) -> str | None:
    """A remark if the scores of a finished run are further from those that it ended with than rounding explains."""
    run = Run.open(path)
    if not run.finished:
        return None
    then = run.result
    if (then["evaluated_on"], then["n"]) != (report["evaluated_on"], report["n"]):
        return None
    if not more_than_rounding(abs(report["accuracy"] - then["accuracy"]) * then["n"], then["n"]):
        return None
    return (
        f"it was {then['accuracy']:.2%} when the run ended: the items or their labels have changed since, or are "
        "decoded differently"
    )


def held_out(run: Run, corpus: Corpus, on: On = "auto") -> tuple[HeldOut, NDArray[np.int64], Dataset]:
    """The held-out items whose class is known: the test set or, if there is none, validation items.

    Returns which of the two, their positions (in the test set or among the training items), and the items.
    """
    if on in ("auto", "test") and corpus.test is not None:
        known = np.flatnonzero(corpus.test.labels != UNKNOWN)
        if len(known):
            return "test", known, corpus.test.view(known)
    validation = run.split.validation
    if on in ("auto", "validation") and len(validation):
        return "validation", validation, corpus.train.view(validation)
    if on == "validation":
        raise UserError(f"{run.path} has no validation items: train with --validation to set some aside")
    held = "labelled test items" if on == "test" else "held-out items"
    raise UserError(f"{run.path} has no {held}, and so no accuracy: {run.how_to_test}")
