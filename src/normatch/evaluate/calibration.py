"""Calibration: whether predictions of 90% confidence are right nine times in ten, and a temperature to correct it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from normatch.seeding import permutation

__all__ = [
    "BINS",
    "COLDEST",
    "HOTTEST",
    "Bin",
    "calibration_error",
    "cross_fit",
    "fit_temperature",
    "mean_gap",
    "reliability",
    "soften",
]

BINS = 15
"""Number of equal intervals of confidence, as in Guo et al. 2017."""

COLDEST, HOTTEST = 0.05, 20.0
"""Bounds of the temperature: if every item is right, the log-loss is least at temperature 0."""

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Bin:
    """The items whose confidence is in [low, high), with mean confidence and accuracy, None if there are no items."""

    low: float
    high: float
    n: int
    confidence: float | None
    accuracy: float | None


def reliability(confidence: Floats, correct: NDArray[np.bool_], bins: int = BINS) -> tuple[Bin, ...]:
    """Mean confidence and accuracy in ``bins`` equal intervals of confidence (N,); the last one includes 1."""
    index = np.minimum((confidence * bins).astype(np.int64), bins - 1)
    counts = np.bincount(index, minlength=bins)
    sums = (np.bincount(index, weights=values, minlength=bins) for values in (confidence, correct))
    confidences, hits = (np.divide(s, counts, out=np.zeros(bins), where=counts > 0).tolist() for s in sums)
    return tuple(
        Bin(b / bins, (b + 1) / bins, n, confidences[b] if n else None, hits[b] if n else None)
        for b, n in enumerate(counts.tolist())
    )


def mean_gap(bins: tuple[Bin, ...]) -> float:
    """ECE = Σ n_b/N · |accuracy_b − confidence_b| (Guo et al. 2017)."""
    gaps = ((b.n, abs(b.accuracy - b.confidence)) for b in bins if b.accuracy is not None and b.confidence is not None)
    return sum(n * gap for n, gap in gaps) / sum(b.n for b in bins)


def calibration_error(p: Floats, labels: NDArray[np.int64], bins: int = BINS) -> float:
    """The expected calibration error of probabilities (N, K) for labels (N,): see :func:`mean_gap`."""
    return mean_gap(reliability(p.max(1), p.argmax(1) == labels, bins))


def soften(logits: Floats, temperature: float | Floats) -> NDArray[np.float64]:
    """softmax(logits / T) (N, K); T is one number, or one for each row as (N, 1)."""
    scaled = np.asarray(logits, dtype=np.float64) / temperature
    p = np.exp(scaled - scaled.max(1, keepdims=True))
    return np.asarray(p / p.sum(1, keepdims=True))


def fit_temperature(logits: Floats, labels: NDArray[np.int64]) -> float:
    """The temperature at which softmax(logits / T) has the least log-loss on these items (Guo et al. 2017).

    The log-loss is convex in β = 1/T, so its slope, the mean of E_p[z] − z_y, has at most one zero, which bisection of
    log β finds. If there is none for T between 1/20 and 20, the result is the nearer bound.
    """
    z = np.asarray(logits, dtype=np.float64)
    own = z[np.arange(len(z)), labels]
    low, high = -np.log(HOTTEST), -np.log(COLDEST)
    for _ in range(50):
        middle = (low + high) / 2
        slope = ((soften(z, np.exp(-middle)) * z).sum(1) - own).mean()
        low, high = (middle, high) if slope < 0 else (low, middle)
    return float(np.exp(-(low + high) / 2))


def cross_fit(logits: Floats, labels: NDArray[np.int64], seed: int) -> tuple[NDArray[np.float64], tuple[float, float]]:
    """Probabilities (N, K), each random half scaled by the temperature fitted on the other half; both temperatures."""
    halves = permutation(len(labels), seed, "calibration") % 2
    temperatures = tuple(fit_temperature(logits[halves != h], labels[halves != h]) for h in (0, 1))
    return soften(logits, np.asarray(temperatures)[halves][:, None]), (temperatures[0], temperatures[1])
