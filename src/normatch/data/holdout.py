"""Stratified hold-out: a test set for data that has none, and validation items."""

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from normatch.data.balance import missing_labels
from normatch.data.dataset import UNKNOWN, Corpus
from normatch.data.source import sources
from normatch.errors import UserError
from normatch.seeding import permutation

__all__ = ["hold_out", "how_to_test", "stratified"]

Indices = NDArray[np.int64]


def stratified(labels: NDArray[np.int64], share: float, seed: int, purpose: str) -> Indices:
    """Sorted positions of ``share`` of the labelled items (rounded up), each class as near to its share as possible."""
    known, counts = np.unique(labels[labels != UNKNOWN], return_counts=True)
    exact = counts * share
    take = np.floor(exact).astype(np.int64)
    # Items lost by rounding down go to the classes with the largest remainders, the first among equals.
    short = math.ceil(round(counts.sum() * share, 9)) - take.sum()
    take[np.argsort(take - exact, kind="stable")[:short]] += 1
    chosen = [np.zeros(0, dtype=np.int64)]
    for label, n in zip(known.tolist(), take.tolist(), strict=True):
        members = np.flatnonzero(labels == label)
        chosen.append(members[permutation(len(members), seed, purpose, label)[:n]])
    return np.sort(np.concatenate(chosen))


def hold_out(corpus: Corpus, share: float, seed: int) -> Corpus:
    """A corpus whose test set is ``share`` of its labelled training items, drawn by seed.

    A test set without labels is replaced: no run could be scored on it. Predefined folds lose the items held out, as
    they lose validation items.
    """
    if corpus.is_testable:
        raise UserError(f"test_share is {share}, but data set {corpus.name!r} brings its own test set: leave it 0")
    train = corpus.train
    testing = stratified(train.labels, share, seed, "test")
    rest = np.setdiff1d(np.arange(len(train)), testing)
    folds = tuple(np.searchsorted(rest, np.intersect1d(fold, rest)) for fold in corpus.folds)
    # Not copied: of one's own pictures these may be more than the memory holds.
    return Corpus(corpus.name, train.view(rest), train.view(testing), folds, corpus.skipped)


def how_to_test(data: str, counts: Mapping[str, int]) -> str:
    """What gives a run on ``data``, which had no test set, an accuracy; ``counts`` are the labelled items by class.

    >>> how_to_test("pictures", {"cat": 12, "dog": 3})
    "label 2 more of 'dog', or put labelled pictures into test/ beside train/"
    >>> how_to_test("digits", {"zero": 178, "one": 182})
    'train with --test-share 0.2'
    """
    first = missing_labels(counts) or "train with --test-share 0.2"
    kind = Path(data).suffix.lower()
    if data in sources:
        return first
    places = {
        ".npz": "add labelled test items to the file",
        ".csv": "list labelled pictures as test in a column 'split'",
    }
    return f"{first}, or {places.get(kind, 'put labelled pictures into test/ beside train/')}"
