"""Stratified hold-out: a test set for data that has none, and validation items."""

import math

import numpy as np
from numpy.typing import NDArray

from normatch.data.dataset import UNKNOWN, Corpus
from normatch.errors import UserError
from normatch.seeding import permutation

__all__ = ["hold_out", "stratified"]

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
    """A corpus whose test set is ``share`` of its labelled training items, drawn by seed."""
    if corpus.test is not None:
        raise UserError(f"test_share is {share}, but data set {corpus.name!r} brings its own test set: leave it 0")
    train = corpus.train
    testing = stratified(train.labels, share, seed, "test")
    rest = np.setdiff1d(np.arange(len(train)), testing)
    return Corpus(corpus.name, train.subset(rest), train.subset(testing), skipped=corpus.skipped)
