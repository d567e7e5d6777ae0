"""Digits whose labels are chosen in other ways than as many of each class by chance: by chance of all images, one of
each kind, or in two halves, the second by what a run with the first makes of the images.

python benchmarks/which_labels.py trains six seeds of each and writes benchmarks/results/digits-which-labels.json.
"""

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from many_runs import DIGITS, write_all
from numpy.typing import NDArray

from normatch import recipes
from normatch.config import Config
from normatch.data import Corpus, draw_split
from normatch.evaluate import load
from normatch.nets.weights import load_model
from normatch.seeding import permutation
from normatch.training import train
from normatch.training.job import open_corpus, with_test_set
from normatch.training.kinds import of_new_kinds, one_of_each_kind
from normatch.training.run import Run

RESULTS = Path(__file__).parent / "results" / "digits-which-labels.json"
LABELS = (10, 20, 40)
SEEDS = range(300, 306)
KEPT = ("accuracy", "steps", "seconds", "hardware")

Indices = NDArray[np.int64]


def each_class(corpus: Corpus, labels: int, seed: int) -> Indices:
    """As many of each class, by chance."""
    return draw_split(corpus, labels, seed).labelled


def chance(corpus: Corpus, labels: int, seed: int) -> Indices:
    """Of all images, by chance."""
    return permutation(len(corpus.train.labels), seed, "which")[:labels]


def kinds(corpus: Corpus, labels: int, seed: int) -> Indices:
    """One of each kind, by pixels."""
    x = np.asarray(corpus.train.inputs).reshape(len(corpus.train), -1).astype(np.float32)
    return one_of_each_kind(x, labels, seed=seed)[0]


def then_chance(corpus: Corpus, run: Run, first: Indices, more: int, seed: int) -> Indices:
    others = chance(corpus, len(corpus.train.labels), seed)
    return others[~np.isin(others, first)][:more]


def then_suggested(corpus: Corpus, run: Run, first: Indices, more: int, seed: int) -> Indices:
    """As ``normatch suggest`` does."""
    free = np.setdiff1d(np.arange(len(corpus.train.labels)), first)
    return of_new_kinds(load_model(run.path), corpus.train.inputs, first, free, more, seed)[0]


def then_disputed(corpus: Corpus, run: Run, first: Indices, more: int, seed: int) -> Indices:
    """Those of which head and flow disagree, the least confident ones first; then the other least confident ones."""
    rows = load(run.path).label(corpus.train.inputs)
    free = np.setdiff1d(np.arange(len(rows)), first).tolist()
    return np.array(sorted(free, key=lambda i: (bool(rows[i].agree), rows[i].probability))[:more])


AT_ONCE = {"each class": each_class, "chance": chance, "kinds": kinds}
LATER = {"chance": then_chance, "suggested": then_suggested, "disputed": then_disputed}


def trained(task: tuple[int, int]) -> list[dict[str, Any]]:
    """The outcomes of each way with so many labels and this seed."""
    labels, seed = task
    config = recipes.digits(labels, seed)
    corpus = with_test_set(config, open_corpus(config))
    config = config.replace(test_share=0.0, labels=None, fold=0)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for way, choose in AT_ONCE.items():
            add(rows, way, config, corpus, choose(corpus, labels, seed), Path(folder))
        if labels > min(LABELS):
            first = each_class(corpus, labels // 2, seed)
            run = labelled_run(config, corpus, first, Path(folder) / "half")
            assert run is not None
            for way, then in LATER.items():
                both = np.union1d(first, then(corpus, run, first, labels - len(first), seed))
                add(rows, f"half each class, half {way}", config, corpus, both, Path(folder))
    return rows


def add(rows: list[dict[str, Any]], way: str, config: Config, corpus: Corpus, chosen: Indices, folder: Path) -> None:
    add_run(rows, way, corpus, chosen, config.seed, labelled_run(config, corpus, chosen, folder / way))


def add_run(rows: list[dict[str, Any]], way: str, corpus: Corpus, chosen: Indices, seed: int, run: Run | None) -> None:
    each = np.bincount(corpus.train.labels[chosen], minlength=10).tolist()
    outcome = {key: run.result[key] if run else None for key in KEPT}
    rows.append({"way": way, "labels": len(chosen), "seed": seed, "labels of each class": each} | outcome)
    print(rows[-1], flush=True)


def labelled_run(config: Config, corpus: Corpus, chosen: Indices, folder: Path) -> Run | None:
    """A run with these labels; None if a class has none."""
    if len(np.unique(corpus.train.labels[chosen])) < len(corpus.train.classes):
        return None
    return train(config, folder, corpus=dataclasses.replace(corpus, folds=(np.sort(chosen),)))


if __name__ == "__main__":
    write_all(RESULTS, DIGITS, trained, LABELS, SEEDS)
