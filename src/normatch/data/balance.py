"""How the labels are spread over the classes: evenly or not, and whether there are enough to hold some out.

The counts are the labelled items of each class that has any, by its name.
"""

from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from normatch.data.dataset import UNKNOWN, Dataset
from normatch.text import counted

__all__ = ["FEWEST", "describe_ratio", "describe_skew", "label_counts", "missing_labels", "skewed", "too_few"]

FEWEST = 5
"""A class with fewer labelled items has too few to hold some out."""

SKEWED = 3.0
"""Ratio of the largest to the smallest class from which labels count as skewed."""

CHANCE = 0.05
"""Uneven labels are put down to chance if a random choice from equally frequent classes would be as uneven with more
than this probability: 60 labels of 10 such classes are often 3 : 1."""

NAMED = 2
"""Number of classes with too few labels that are named one by one."""


def label_counts(dataset: Dataset, among: NDArray[np.int64] | None = None) -> dict[str, int]:
    """The labelled items of each class that has any: of all, or of those ``among`` some positions."""
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
    """A remark on classes that differ by the factor :data:`SKEWED` or more, by chance or not; None if they do not.

    >>> describe_skew({"cat": 12, "dog": 3})
    'classes are 4.0 : 1: cat has 12 labelled items, dog 3'
    """
    if not _uneven(counts.values()):
        return None
    largest, smallest = (pick(counts, key=counts.__getitem__) for pick in (max, min))
    return (
        f"classes are {describe_ratio(counts.values())}: {largest} has {counts[largest]:,} labelled items, "
        f"{smallest} {counts[smallest]:,}"
    )


def too_few(counts: Mapping[str, int]) -> str | None:
    """A remark on the smallest class, if it has too few labels to hold some out; otherwise None.

    >>> too_few({"cat": 12, "dog": 3})
    'dog has 3 labelled items: too few to hold some out for testing'
    """
    if not counts or min(counts.values()) >= FEWEST:
        return None
    smallest = min(counts, key=counts.__getitem__)
    return f"{smallest} has {counted(counts[smallest], 'labelled item')}: too few to hold some out for testing"


def missing_labels(counts: Mapping[str, int]) -> str | None:
    """What to label so that some items can be held out; None if there are enough.

    >>> missing_labels({"cat": 12, "dog": 3, "owl": 1})
    "label 2 more of 'dog' and 4 more of 'owl'"
    """
    few = {name: FEWEST - n for name, n in counts.items() if n < FEWEST}
    if len(few) > NAMED:
        return f"label at least {FEWEST} of each class ({len(few)} classes have fewer)"
    return f"label {' and '.join(f'{n} more of {name!r}' for name, n in few.items())}" if few else None


def _uneven(counts: Collection[int]) -> bool:
    return len(counts) > 1 and max(counts) >= SKEWED * min(counts)
