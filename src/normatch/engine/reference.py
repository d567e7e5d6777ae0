"""What the labels give without any network: the yardstick that a run must not fall below."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from normatch.data import Dataset

__all__ = ["MOST_ITEMS", "class_mean_accuracy"]

MOST_ITEMS = 2000
"""Items looked at, evenly spaced, so that it takes seconds on any data set."""

PIECE = 64
"""Items that are looked at together."""


def class_mean_accuracy(dataset: Dataset, labelled: NDArray[np.int64], held_out: NDArray[np.int64]) -> float:
    """Accuracy on ``held_out`` of naming the class whose labelled items' mean is nearest.

    Distances are in pixels, or in standard deviations of each feature. NumPy alone, so it repeats on every device.
    """
    scale = np.ones(1) if dataset.is_images else dataset.inputs.std(0)
    scale = np.where(scale > 0, scale, 1)

    def pieces(at: NDArray[np.int64]) -> Iterator[NDArray[np.float64]]:
        # As float64 all items at once would take eight times the memory of their images.
        for some in np.array_split(at, -(-len(at) // PIECE)):
            yield np.asarray(dataset.inputs[some].reshape(len(some), -1) / scale)

    known, asked = (at[:: -(-len(at) // MOST_ITEMS)] for at in (labelled, held_out))
    y = dataset.labels[known]
    classes, counts = np.unique(y, return_counts=True)
    sums = [sum(piece.sum(0) for piece in pieces(known[y == c])) for c in classes]
    means = np.stack(sums) / counts[:, None]
    norms = (means**2).sum(1)
    nearest = np.concatenate([(norms - 2 * (piece @ means.T)).argmin(1) for piece in pieces(asked)])
    return float((classes[nearest] == dataset.labels[asked]).mean())
