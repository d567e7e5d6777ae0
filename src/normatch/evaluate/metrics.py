"""How good predictions are: accuracy, per-class figures, log-loss and calibration."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["calibration_error", "confusion", "scores"]

Probabilities = NDArray[np.floating[Any]]


def scores(p: Probabilities, labels: NDArray[np.int64], classes: tuple[str, ...]) -> dict[str, Any]:
    """One JSON-ready object from probabilities (N, K) and labels (N,).

    ``accuracy`` is between 0 and 1; precision, recall and F1 of a class are 0 where they have no item to count.
    """
    guess = p.argmax(1)
    table = confusion(labels, guess, len(classes))
    hits, actual, guessed = np.diag(table), table.sum(1), table.sum(0)
    return {
        "accuracy": float((guess == labels).mean()),
        "n": len(labels),
        "log_loss": float(-np.log(np.clip(p[np.arange(len(labels)), labels], 1e-12, 1)).mean()),
        "calibration_error": calibration_error(p, labels),
        "per_class": [
            {
                "name": name,
                "n": int(actual[k]),
                "precision": _ratio(hits[k], guessed[k]),
                "recall": _ratio(hits[k], actual[k]),
                "f1": _ratio(2 * hits[k], actual[k] + guessed[k]),
            }
            for k, name in enumerate(classes)
        ],
    }


def confusion(labels: NDArray[np.int64], guess: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
    """(K, K) counts: rows are the truth, columns the guess."""
    return np.bincount(labels * classes + guess, minlength=classes * classes).reshape(classes, classes)


def calibration_error(p: Probabilities, labels: NDArray[np.int64], bins: int = 15) -> float:
    """ECE = Σ n_b/N · |accuracy_b − confidence_b| over ``bins`` equal intervals of confidence (Guo et al. 2017)."""
    confidence, correct = p.max(1), p.argmax(1) == labels
    index = np.minimum((confidence * bins).astype(np.int64), bins - 1)
    gaps = np.bincount(index, weights=correct - confidence, minlength=bins)
    return float(np.abs(gaps).sum() / len(labels))


def _ratio(part: int, whole: int) -> float:
    return float(part / whole) if whole else 0.0
