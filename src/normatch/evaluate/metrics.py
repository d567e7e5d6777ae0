"""Metrics of predictions: accuracy, per-class figures, log-loss and calibration."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from normatch.data import UNKNOWN
from normatch.evaluate.calibration import calibration_error

__all__ = ["agreement", "confusion", "named", "per_class", "scores"]

Probabilities = NDArray[np.floating[Any]]


def named(p: Probabilities) -> NDArray[np.int64]:
    """The class that each row of probabilities (N, K) names: the likeliest, or UNKNOWN if several are.

    The rule of the consensus in training, for a second opinion: an untrained flow, which finds all classes equally
    likely, has none.

    >>> named(np.array([[0.2, 0.8], [0.5, 0.5]])).tolist()
    [1, -1]
    """
    shared = (p == p.max(1, keepdims=True)).sum(1) > 1
    return np.where(shared, UNKNOWN, p.argmax(1))


def agreement(p: Probabilities, q: Probabilities) -> NDArray[np.bool_]:
    """(N,) whether two classifiers name the same class; one that names none agrees with nothing."""
    first = named(p)
    return np.asarray((first != UNKNOWN) & (first == named(q)))


def scores(p: Probabilities, labels: NDArray[np.int64], classes: tuple[str, ...]) -> dict[str, Any]:
    """One JSON-ready object from probabilities (N, K) and labels (N,).

    ``accuracy`` is between 0 and 1; precision, recall and F1 of a class are 0 where their denominator is 0.
    """
    guess = p.argmax(1)
    return {
        "accuracy": float((guess == labels).mean()),
        "n": len(labels),
        "log_loss": float(-np.log(np.clip(p[np.arange(len(labels)), labels], 1e-12, 1)).mean()),
        "calibration_error": calibration_error(p, labels),
        "per_class": per_class(confusion(labels, guess, len(classes)), classes),
    }


def per_class(table: NDArray[np.int64], classes: tuple[str, ...]) -> list[dict[str, Any]]:
    """Name, number of items, precision, recall and F1 of each class, from a :func:`confusion` table."""
    hits, actual, guessed = np.diag(table), table.sum(1), table.sum(0)
    return [
        {
            "name": name,
            "n": int(actual[k]),
            "precision": _ratio(hits[k], guessed[k]),
            "recall": _ratio(hits[k], actual[k]),
            "f1": _ratio(2 * hits[k], actual[k] + guessed[k]),
        }
        for k, name in enumerate(classes)
    ]


def confusion(labels: NDArray[np.int64], guess: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
    """(K, K) counts: rows are the truth, columns the guess."""
    return np.bincount(labels * classes + guess, minlength=classes * classes).reshape(classes, classes)


def _ratio(part: int, whole: int) -> float:
    return float(part / whole) if whole else 0.0
