"""Statistical uncertainty: intervals of an accuracy and of a mean, and a test of two models on the same items."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Paired", "describe_accuracy", "mcnemar", "mean_interval", "wilson_interval"]

NORMAL_95 = 1.959963984540054
"""The standard normal distribution has 95% of its mass within ± this value."""


def wilson_interval(correct: int, n: int) -> tuple[float, float]:
    """The 95% confidence interval of a proportion of which ``correct`` of ``n`` were observed (Wilson 1927).

    Unlike share ± 1.96 standard errors it stays within 0 … 1 and is valid for few items and shares near 1.

    >>> [round(end, 3) for end in wilson_interval(9, 10)]
    [0.596, 0.982]
    """
    share, z2 = correct / n, NORMAL_95**2
    centre = share + z2 / (2 * n)
    spread = NORMAL_95 * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    low, high = (centre - spread) / (1 + z2 / n), (centre + spread) / (1 + z2 / n)
    return (low if correct else 0.0), (high if correct < n else 1.0)


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95% confidence interval of the mean from two or more independent values, by Student's t.

    >>> [round(end, 2) for end in mean_interval([1.0, 2.0, 3.0])]
    [-0.48, 4.48]
    """
    from scipy.special import stdtrit  # here, because few commands need it, and all would wait for it

    mean, n = statistics.mean(values), len(values)
    half = float(stdtrit(n - 1, 0.975)) * statistics.stdev(values) / math.sqrt(n)
    return mean - half, mean + half


def describe_accuracy(accuracy: float, n: int, which: str) -> str:
    """An accuracy with its confidence interval, as text.

    >>> describe_accuracy(0.9, 10, "test")
    'accuracy 90.00% on 10 test items (95% interval 59.6% to 98.2%)'
    """
    low, high = wilson_interval(round(accuracy * n), n)
    items = f"{n} {which} item{'' if n == 1 else 's'}"
    return f"accuracy {accuracy:.2%} on {items} (95% interval {low:.1%} to {high:.1%})"


@dataclass(frozen=True)
class Paired:
    """Two models on the same ``n`` items: ``won`` only the first got right, ``lost`` only the second."""

    n: int
    won: int
    lost: int
    p: float
    """Probability of a difference at least this large if both were equally good (McNemar's exact test, two-sided)."""


def mcnemar(first: NDArray[np.bool_], second: NDArray[np.bool_]) -> Paired:
    """Compare two models by which of the same items (N,) each got right; only items where they differ count."""
    won, lost = int((first & ~second).sum()), int((second & ~first).sum())
    differ = won + lost
    ways = tail = 1
    for k in range(min(won, lost)):
        ways = ways * (differ - k) // (k + 1)
        tail += ways
    return Paired(len(first), won, lost, min(1.0, 2 * tail / 2**differ))
