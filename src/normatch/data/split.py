"""Which samples are labelled, held out for testing and for validation: by class and seed, the same on every machine."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from normatch.data.dataset import UNKNOWN, Corpus, Dataset
from normatch.data.source import sources
from normatch.errors import UserError
from normatch.seeding import permutation
from normatch.text import counted

__all__ = [
    "FEWEST",
    "Split",
    "describe_ratio",
    "describe_skew",
    "draw_split",
    "files_of",
    "hold_out",
    "how_to_test",
    "label_counts",
    "skewed",
    "stratified",
    "too_few",
]

Indices = NDArray[np.int64]

FEWEST = 5
"""A class with fewer labelled samples has too few to hold some out."""

SKEWED = 3.0
"""Ratio of the largest to the smallest class from which labels count as skewed."""

CHANCE = 0.05
"""Uneven labels are put down to chance if a random choice from equally frequent classes would be as uneven with more
than this probability: 60 labels of 10 such classes are often 3 : 1."""


@dataclass(frozen=True)
class Split:
    """Positions among the training samples: those whose labels are used, the unlabelled ones, those for validation."""

    labelled: Indices
    unlabelled: Indices
    validation: Indices

    @property
    def others(self) -> Indices:
        """The unlabelled samples whose label is not used."""
        return self.unlabelled[~np.isin(self.unlabelled, self.labelled)]

    def to_json(self) -> dict[str, Any]:
        """The positions; of the unlabelled samples, which are nearly all, those that are not among them."""
        end = int(self.unlabelled.max(initial=-1)) + 1
        return {
            "labelled": self.labelled.tolist(),
            "unlabelled": {"below": end, "without": np.delete(np.arange(end), self.unlabelled).tolist()},
            "validation": self.validation.tolist(),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Split":
        """ValueError if there is something else than positions."""
        return cls(**{name: _positions(name, value[name]) for name in ("labelled", "unlabelled", "validation")})


def _members(labels: Indices, classes: int) -> list[Indices]:
    """The positions of the samples of each class, in order."""
    order = np.argsort(labels, kind="stable")
    return np.split(order, np.searchsorted(labels, np.arange(classes + 1), sorter=order))[1:-1]


def _positions(name: str, value: Any) -> Indices:
    if isinstance(value, dict):
        end, without = int(value["below"]), _positions(name, value["without"])
        if without.max(initial=-1) >= end:
            raise ValueError(f"{name} is without positions that are not below {end}")
        return np.delete(np.arange(end), without)
    found = np.asarray(value)
    if found.ndim != 1 or (len(found) and (found.dtype.kind != "i" or found.min() < 0)):
        raise ValueError(f"{name} has something else than positions")
    return found.astype(np.int64)


def stratified(labels: NDArray[np.int64], share: float, seed: int, purpose: str) -> Indices:
    """Sorted positions of ``share`` of the labelled samples (rounded up), as near to it as possible in each class."""
    known, counts = np.unique(labels[labels != UNKNOWN], return_counts=True)
    exact = counts * share
    take = np.floor(exact).astype(np.int64)
    # Samples lost by rounding down go to the classes with the largest remainders, the first among equals.
    short = math.ceil(round(counts.sum() * share, 9)) - take.sum()
    take[np.argsort(take - exact, kind="stable")[:short]] += 1
    chosen = [np.zeros(0, dtype=np.int64)]
    members = _members(labels, int(labels.max(initial=UNKNOWN)) + 1)
    for label, n in zip(known.tolist(), take.tolist(), strict=True):
        chosen.append(members[label][permutation(len(members[label]), seed, purpose, label)[:n]])
    return np.sort(np.concatenate(chosen))


def hold_out(corpus: Corpus, share: float, seed: int) -> Corpus:
    """A corpus whose test set is ``share`` of its labelled training samples, drawn by seed.

    A test set without labels is replaced: no run could be scored on it. Predefined folds lose the samples held out, as
    they lose those for validation.
    """
    if corpus.is_testable:
        raise UserError(f"test_share is {share}, but data set {corpus.name!r} brings its own test set: leave it 0")
    train = corpus.train
    testing = stratified(train.labels, share, seed, "test")
    rest = np.delete(np.arange(len(train)), testing)  # np.setdiff1d takes half a minute for 20 million
    folds = tuple(np.searchsorted(rest, np.intersect1d(fold, rest)) for fold in corpus.folds)
    # Not copied: of one's own pictures these may be more than the memory holds.
    return Corpus(corpus.name, train.view(rest), train.view(testing), folds, corpus.skipped)


def draw_split(
    corpus: Corpus,
    labels: int | None,
    seed: int,
    *,
    validation: float = 0.0,
    include_labelled: bool = True,
    fold: int | None = None,
    named: Indices | None = None,
) -> Split:
    """Choose ``labels`` samples in total, equally many of each class; None uses every label there is.

    ``validation`` is the share of the labelled training samples set aside first, class by class. The unlabelled set is
    all other training samples, with the labelled ones (as in FixMatch) or without. Instead of a random draw ``fold``
    selects one of the data set's predefined labelled subsets, and ``named`` is one that the user has chosen.
    """
    truth, classes = corpus.train.labels, corpus.train.classes
    # Labels of label files leave what is set aside as it is.
    validating = stratified(corpus.labels_of_data, validation, seed, "validation")
    if named is not None:
        labelled = _these(corpus, named, validating, labels, "labelled")
    elif fold is not None:
        if not 0 <= fold < len(corpus.folds):
            has = f"has folds 0 to {len(corpus.folds) - 1}" if corpus.folds else "has no predefined folds, leave it out"
            raise UserError(f"fold is {fold}: data set {corpus.name!r} {has}")
        labelled = _these(corpus, corpus.folds[fold], validating, labels, f"fold {fold}")
    else:
        free = truth.copy()
        free[validating] = UNKNOWN
        labelled = _draw(dict(zip(classes, _members(free, len(classes)), strict=True)), labels, seed)
    excluded = validating if include_labelled else np.concatenate([validating, labelled])
    return Split(labelled, np.delete(np.arange(len(truth)), excluded), validating)


def _draw(members: Mapping[str, Indices], labels: int | None, seed: int) -> Indices:
    """``labels`` in total of the ``members`` of each class, equally many of each; all if None."""
    if labels is not None and (labels < len(members) or labels % len(members)):
        near = max(1, min(labels // len(members), *map(len, members.values()))) * len(members)
        raise UserError(f"labels is {labels}: give a multiple of the {len(members)} classes, such as {near}")
    each = None if labels is None else labels // len(members)
    for c, (name, own) in enumerate(members.items()):
        if len(own) < (each or 1):
            # Classes without names are called by their numbers.
            gap = ", or number the classes without gaps" if not len(own) and name == str(c) else ""
            raise UserError(
                f"class {name!r} has {counted(len(own), 'labelled sample')} left to train on, but needs {each or 1}: "
                f"label more, ask for fewer with --labels, or set aside fewer with --test-share or --validation{gap}"
            )
    drawn = [own[permutation(len(own), seed, "split", c)[:each]] for c, own in enumerate(members.values())]
    return np.sort(np.concatenate(drawn))


def _these(corpus: Corpus, positions: Indices, validating: Indices, labels: int | None, what: str) -> Indices:
    """Those of the positions that are not set aside; UserError, which calls them ``what``, if they are no labels."""
    train = corpus.train
    if labels not in (None, len(positions)):
        raise UserError(f"labels is {labels}, but {what} has {len(positions):,}: give labels {len(positions)}")
    if len(positions) and positions.max() >= len(train):
        raise UserError(f"{what} has position {positions.max()}: give those from 0 to {len(train) - 1}")
    unknown = positions[train.labels[positions] == UNKNOWN]
    if len(unknown):
        raise UserError(f"{what} has position {unknown[0]}, which has no label: label it in the data, or leave it out")
    labelled = np.setdiff1d(positions, validating)
    missing = set(range(len(train.classes))) - set(train.labels[labelled].tolist())
    if missing:
        raise UserError(f"{what} has no label for class {train.classes[min(missing)]!r}: use labels of every class")
    return labelled


def files_of(split: Split, corpus: Corpus) -> dict[str, list[str]]:
    """The names of the labelled, validation and test files, for people to read; empty if samples are not files.

    All other files are unlabelled.
    """
    train, test = corpus.train.files, corpus.test.files if corpus.test is not None else None
    if train is None:
        return {}
    return {
        "labelled": train[split.labelled].tolist(),
        "validation": train[split.validation].tolist(),
        "test": test.tolist() if test is not None else [],
    }


def label_counts(dataset: Dataset, among: NDArray[np.int64] | None = None) -> dict[str, int]:
    """The labelled samples of each class that has any: of all, or of those ``among`` some positions."""
    labels = dataset.labels if among is None else dataset.labels[among]
    known, counts = np.unique(labels[labels != UNKNOWN], return_counts=True)
    return {dataset.classes[label]: n for label, n in zip(known.tolist(), counts.tolist(), strict=True)}


def skewed(counts: Collection[int]) -> bool:
    """Whether the classes differ by the factor :data:`SKEWED` or more, and by more than chance (Pearson's χ²).

    >>> skewed([12, 12, 3, 3]), skewed([3, 1])
    (True, False)
    """
    if not _uneven(counts):
        return False
    from scipy.special import chdtrc

    mean = sum(counts) / len(counts)
    return bool(chdtrc(len(counts) - 1, sum((n - mean) ** 2 / mean for n in counts)) < CHANCE)


def describe_ratio(counts: Collection[int]) -> str:
    """The largest class to the smallest: '4.0 : 1'."""
    return f"{max(counts) / min(counts):.1f} : 1"


def describe_skew(counts: Mapping[str, int]) -> str | None:
    """A remark on classes that differ by the factor :data:`SKEWED` or more, at random or not; None if they do not.

    >>> describe_skew({"cat": 12, "dog": 3})
    'classes are 4.0 : 1: cat has 12 labelled samples, dog 3'
    """
    if not _uneven(counts.values()):
        return None
    largest, smallest = (pick(counts, key=counts.__getitem__) for pick in (max, min))
    return (
        f"classes are {describe_ratio(counts.values())}: {largest} has {counts[largest]:,} labelled samples, "
        f"{smallest} {counts[smallest]:,}"
    )


def too_few(counts: Mapping[str, int]) -> str | None:
    """A remark on the smallest class, if it has too few labels to hold some out; otherwise None.

    >>> too_few({"cat": 12, "dog": 3})
    'dog has 3 labelled samples: too few to hold some out for testing'
    """
    if not counts or min(counts.values()) >= FEWEST:
        return None
    smallest = min(counts, key=counts.__getitem__)
    return f"{smallest} has {counted(counts[smallest], 'labelled sample')}: too few to hold some out for testing"


def _uneven(counts: Collection[int]) -> bool:
    return len(counts) > 1 and max(counts) >= SKEWED * min(counts)


def how_to_test(data: str, counts: Mapping[str, int]) -> str:
    """What gives a run on ``data``, which had no test set, an accuracy; ``counts`` are the labelled samples by class.

    >>> how_to_test("pictures", {"cat": 12, "dog": 3})
    'label at least 5 of each class, or put labelled pictures into test/ beside train/'
    >>> how_to_test("digits", {"zero": 178, "one": 182})
    'train with --test-share 0.2'
    """
    few = any(n < FEWEST for n in counts.values())
    first = f"label at least {FEWEST} of each class" if few else "train with --test-share 0.2"
    if data in sources:
        return first
    places = {
        ".npz": "add labelled test samples to the file",
        ".csv": "list labelled pictures as test in a column 'split'",
    }
    return f"{first}, or {places.get(Path(data).suffix.lower(), 'put labelled pictures into test/ beside train/')}"
