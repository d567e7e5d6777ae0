"""Metrics of predictions: accuracy, F1, log-loss, agreement of two classifiers, calibration and its temperature."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from normatch.data import UNKNOWN
from normatch.seeding import permutation

__all__ = [
    "BINS",
    "COLDEST",
    "HOTTEST",
    "LEAST_TO_FIT",
    "Bin",
    "agreement",
    "averages",
    "calibration_error",
    "confusion",
    "cross_fit",
    "fit_temperature",
    "mean_gap",
    "per_class",
    "reliability",
    "scores",
    "soften",
    "trusted_temperature",
    "untied_argmax",
]

BINS = 15
"""Number of equal intervals of confidence, as in Guo et al. 2017."""

COLDEST, HOTTEST = 0.05, 20.0
"""Bounds of the temperature: if every prediction is right, the log-loss is least at temperature 0."""

LEAST_TO_FIT = 20
"""Fewer samples do not determine a temperature."""

Floats = NDArray[np.floating[Any]]
Labels = NDArray[np.int64]


def scores(p: Floats, labels: Labels, classes: tuple[str, ...]) -> dict[str, Any]:
    """One JSON-ready object from probabilities (N, K) and labels (N,); shares are between 0 and 1."""
    predicted = p.argmax(1)
    return {
        "n": len(labels),
        **averages(labels, predicted),
        "log_loss": float(-np.log(np.clip(p[np.arange(len(labels)), labels], 1e-12, 1)).mean()),
        "calibration_error": calibration_error(p, labels),
        "per_class": per_class(labels, predicted, classes),
    }


def averages(labels: Labels, predicted: Labels) -> dict[str, float]:
    """Accuracy and, with equal weight for each class, mean F1 and mean recall (balanced accuracy) by scikit-learn."""
    from sklearn.metrics import f1_score, recall_score  # a second of import that few commands need

    present = np.unique(labels)
    return {
        "accuracy": float((predicted == labels).mean()),
        "macro_f1": float(f1_score(labels, predicted, average="macro", zero_division=0.0)),
        "balanced_accuracy": float(recall_score(labels, predicted, labels=present, average="macro")),
    }


def per_class(labels: Labels, predicted: Labels, classes: tuple[str, ...]) -> list[dict[str, Any]]:
    """Name, number of samples, precision, recall and F1 of each class; a ratio whose denominator is 0 is 0."""
    from sklearn.metrics import precision_recall_fscore_support

    found = precision_recall_fscore_support(labels, predicted, labels=range(len(classes)), zero_division=0.0)
    rows = zip(classes, *(column.tolist() for column in found), strict=True)
    return [{"name": name, "n": n, "precision": p, "recall": r, "f1": f1} for name, p, r, f1, n in rows]


def confusion(labels: Labels, predicted: Labels, classes: int) -> NDArray[np.int64]:
    """(K, K) counts: rows are the true class, columns the predicted one."""
    return np.bincount(labels * classes + predicted, minlength=classes * classes).reshape(classes, classes)


def untied_argmax(p: Floats) -> Labels:
    """The most probable class of each row of probabilities (N, K), or UNKNOWN if several are.

    The tie rule of the consensus in training, for an auxiliary classifier: an untrained flow, which finds all classes
    equally probable, predicts none.

    >>> untied_argmax(np.array([[0.2, 0.8], [0.5, 0.5]])).tolist()
    [1, -1]
    """
    shared = (p == p.max(1, keepdims=True)).sum(1) > 1
    return np.where(shared, UNKNOWN, p.argmax(1))


def agreement(p: Floats, q: Floats) -> NDArray[np.bool_]:
    """(N,) whether two classifiers predict the same class; one that predicts none agrees with nothing."""
    first = untied_argmax(p)
    return np.asarray((first != UNKNOWN) & (first == untied_argmax(q)))


@dataclass(frozen=True)
class Bin:
    """The samples whose confidence is in [low, high): mean confidence and accuracy, None if there are none."""

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


def calibration_error(p: Floats, labels: Labels, bins: int = BINS) -> float:
    """The expected calibration error of probabilities (N, K) for labels (N,): see :func:`mean_gap`."""
    return mean_gap(reliability(p.max(1), p.argmax(1) == labels, bins))


def soften(logits: Floats, temperature: float | Floats) -> NDArray[np.float64]:
    """softmax(logits / T) (N, K); T is one number, or one for each row as (N, 1)."""
    from scipy.special import softmax

    return np.asarray(softmax(np.asarray(logits, np.float64) / temperature, axis=1))


def fit_temperature(logits: Floats, labels: Labels) -> float:
    """The temperature at which softmax(logits / T) has the least log-loss on these samples (Guo et al. 2017).

    The log-loss is convex in 1/T, so it has one minimum; if that is not between 1/20 and 20, the nearer bound.
    """
    from scipy.optimize import minimize_scalar
    from scipy.special import log_softmax

    z, rows = np.asarray(logits, np.float64), np.arange(len(labels))

    def loss(log_temperature: float) -> float:
        return float(-log_softmax(z * np.exp(-log_temperature), axis=1)[rows, labels].mean())

    bounds = (np.log(COLDEST), np.log(HOTTEST))
    return float(np.exp(minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-8}).x))


def trusted_temperature(logits: Floats, labels: Labels) -> float | None:
    """The temperature to predict with, from validation samples; None if they do not determine one: they are too few,
    or all of them are right, so that the most extreme temperature fits best."""
    if len(labels) < LEAST_TO_FIT:
        return None
    found = fit_temperature(logits, labels)
    return found if 1.01 * COLDEST < found < 0.99 * HOTTEST else None


def cross_fit(logits: Floats, labels: Labels, seed: int) -> tuple[NDArray[np.float64], tuple[float, float]]:
    """Probabilities (N, K), each random half scaled by the temperature fitted on the other half; both temperatures."""
    halves = permutation(len(labels), seed, "calibration") % 2
    temperatures = tuple(fit_temperature(logits[halves != h], labels[halves != h]) for h in (0, 1))
    return soften(logits, np.asarray(temperatures)[halves][:, None]), (temperatures[0], temperatures[1])
