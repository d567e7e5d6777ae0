"""Statistical uncertainty: confidence intervals of an accuracy and of a mean, and a paired test of two models."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Paired", "describe_accuracy", "mcnemar", "mean_interval", "wilson_interval"]

# scipy.stats is imported where it is used: few commands need it, and all would wait for it.


def wilson_interval(correct: int, n: int) -> tuple[float, float]:
    """The 95% confidence interval of a proportion of which ``correct`` of ``n`` were observed (Wilson 1927).

    Unlike share ± 1.96 standard errors it stays within 0 … 1 and is valid for few samples and shares near 1.

    >>> [round(end, 3) for end in wilson_interval(9, 10)]
    [0.596, 0.982]
    """
    from scipy.stats import binomtest

    low, high = binomtest(correct, n).proportion_ci(method="wilson")
    return float(low), float(high)


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95% confidence interval of the mean from two or more independent values, by Student's t.

    >>> [round(end, 2) for end in mean_interval([1.0, 2.0, 3.0])]
    [-0.48, 4.48]
    """
    from scipy.stats import t

    # Not scipy's ttest_1samp, which warns of values that are equal: differences of short runs often are.
    mean, n = float(np.mean(values)), len(values)
    half = float(t.ppf(0.975, n - 1) * np.std(values, ddof=1)) / math.sqrt(n)
    return mean - half, mean + half


def describe_accuracy(accuracy: float, n: int, which: str) -> str:
    """An accuracy with its confidence interval, as text.

    >>> describe_accuracy(0.9, 10, "test")
    'accuracy 90.00% on 10 test samples (95% interval 59.6% to 98.2%)'
    """
    low, high = wilson_interval(round(accuracy * n), n)
    samples = f"{n} {which} sample{'' if n == 1 else 's'}"
    return f"accuracy {accuracy:.2%} on {samples} (95% interval {low:.1%} to {high:.1%})"


@dataclass(frozen=True)
class Paired:
    """Two models on the same ``n`` samples: ``won`` only the first got right, ``lost`` only the second."""

    n: int
    won: int
    lost: int
    p: float
    """Probability of a difference at least this large if both were equally good (McNemar's exact test, two-sided)."""


def mcnemar(first: NDArray[np.bool_], second: NDArray[np.bool_]) -> Paired:
    """Compare two models by which of the same samples (N,) each got right; only those where they differ count."""
    from scipy.stats import binomtest

    won, lost = int((first & ~second).sum()), int((second & ~first).sum())
    return Paired(len(first), won, lost, float(binomtest(won, won + lost).pvalue) if won + lost else 1.0)
