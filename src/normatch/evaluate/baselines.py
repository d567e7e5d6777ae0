"""What a few seconds buy: logistic regression and label spreading on features, beside every run on one's own data."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from normatch.data import UNKNOWN

__all__ = ["Baseline", "baselines", "hog"]

CELLS, ORIENTATIONS = 8, 9
"""Cells along each side of an image, and bins of half a turn, of the histograms of oriented gradients."""

STRENGTHS = np.logspace(-4, 1, 6)
"""Inverse regularisations of the logistic regression, of which cross-validation over the labels chooses one."""

NEIGHBOURS, SPREADABLE = 20, 20_000
"""Neighbours of label spreading, and the most samples for which it takes seconds."""

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Baseline:
    """A classifier of features, and what it predicts for the samples that are held out."""

    name: str
    predicted: NDArray[np.int64]
    """(M,) classes."""


def baselines(z: Floats, labels: NDArray[np.int64], held_out: Floats, seed: int) -> list[Baseline]:
    """Fit on features ``z`` (N, D) with ``labels`` (N,), −1 where unlabelled, and predict ``held_out`` (M, D)."""
    from sklearn.preprocessing import StandardScaler

    scale = StandardScaler().fit(z)
    z, held_out = scale.transform(z).astype(np.float32), scale.transform(held_out).astype(np.float32)
    known = labels != UNKNOWN
    linear = _logistic_regression(z[known], labels[known], seed)
    found = [Baseline("logistic regression", linear.predict(held_out).astype(np.int64))]
    if len(z) <= SPREADABLE and not known.all():
        found.append(Baseline("label spreading", _label_spreading(z, labels, held_out)))
    return found


def _logistic_regression(z: Floats, labels: NDArray[np.int64], seed: int) -> Any:
    """With the strength that cross-validation over the labels chooses, where each class has enough of them."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, StratifiedKFold

    model = LogisticRegression(max_iter=200, C=0.1)
    least = int(np.bincount(labels)[np.unique(labels)].min())
    if least > 1:
        folds = StratifiedKFold(min(5, least), shuffle=True, random_state=seed % 2**32)
        model = GridSearchCV(model, {"C": STRENGTHS}, cv=folds)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(z, labels)


def _label_spreading(z: Floats, labels: NDArray[np.int64], held_out: Floats) -> NDArray[np.int64]:
    """On the graph of nearest neighbours by cosine (Zhou et al. 2004)."""
    from sklearn.preprocessing import normalize
    from sklearn.semi_supervised import LabelSpreading

    model = LabelSpreading(kernel="knn", n_neighbors=min(NEIGHBOURS, len(z)), max_iter=100)
    with warnings.catch_warnings(), np.errstate(invalid="ignore", divide="ignore"):
        warnings.simplefilter("ignore")  # of samples that no label reaches
        model.fit(normalize(z), labels)
        predicted: NDArray[np.int64] = model.predict(normalize(held_out)).astype(np.int64)
    return predicted


def hog(images: NDArray[np.uint8]) -> Floats:
    """Histograms of oriented gradients (Dalal and Triggs 2005) of images (N, H, W, C): 8 × 8 cells of 9 orientations,
    each gradient shared by the two nearest, normalised in blocks of 2 × 2 cells; (N, 1764)."""
    grey = images.astype(np.float32).mean(3)
    dy, dx = np.zeros_like(grey), np.zeros_like(grey)
    dy[:, 1:-1], dx[:, :, 1:-1] = grey[:, 2:] - grey[:, :-2], grey[:, :, 2:] - grey[:, :, :-2]
    length = np.hypot(dx, dy)
    at = (np.arctan2(dy, dx) % np.pi) / np.pi * ORIENTATIONS
    low = np.floor(at).astype(np.int64) % ORIENTATIONS
    upper = at - np.floor(at)
    n, height, width = grey.shape
    # Each pixel's cell; with fewer pixels than cells, some cells are empty.
    rows, columns = (np.arange(side) * CELLS // side for side in (height, width))
    cell = (np.arange(n)[:, None, None] * CELLS + rows[:, None]) * CELLS + columns
    counts = np.zeros(n * CELLS * CELLS * ORIENTATIONS, np.float32)
    for bins, share in ((low, 1 - upper), ((low + 1) % ORIENTATIONS, upper)):
        counts += np.bincount((cell * ORIENTATIONS + bins).ravel(), (length * share).ravel(), len(counts)).astype(
            np.float32
        )
    cells = counts.reshape(n, CELLS, CELLS, ORIENTATIONS)
    blocks = np.concatenate([cells[:, i : CELLS - 1 + i, j : CELLS - 1 + j] for i in (0, 1) for j in (0, 1)], 3)
    blocks /= np.linalg.norm(blocks, axis=3, keepdims=True) + 1e-3
    return np.ascontiguousarray(blocks.reshape(n, -1))
