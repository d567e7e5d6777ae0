"""A baseline that uses the labels without any network, below which a run should not fall."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from normatch.data import Dataset
from normatch.seeding import sample

__all__ = ["MOST_ITEMS", "class_mean_accuracy"]

MOST_ITEMS = 2000
"""Most labelled and most held-out items used, drawn at random, so that it takes only seconds on any data set."""

PIECE = 64
"""Number of items processed at a time."""


def class_mean_accuracy(dataset: Dataset, labelled: NDArray[np.int64], held_out: NDArray[np.int64]) -> float:
    """Accuracy on ``held_out`` of predicting the class with the nearest mean of labelled items.

    Distances are between pixel values, or in standard deviations of each feature. In NumPy alone, so that the result
    does not depend on the device.
    """
    scale = np.ones(1) if dataset.is_images else np.asarray(dataset.inputs).std(0, dtype=np.float64)
    scale = np.where(scale > 0, scale, 1)

    def pieces(at: NDArray[np.int64]) -> Iterator[NDArray[np.float64]]:
        # In pieces, because as float64 all items would take eight times the memory of their images.
        for some in np.array_split(at, -(-len(at) // PIECE)):
            yield np.asarray(dataset.inputs[some].reshape(len(some), -1) / scale)

    known, tested = (at[sample(len(at), MOST_ITEMS, 0, "reference")] for at in (labelled, held_out))
    y = dataset.labels[known]
    classes, counts = np.unique(y, return_counts=True)
    sums = [sum(piece.sum(0) for piece in pieces(known[y == c])) for c in classes]
    means = np.stack(sums) / counts[:, None]
    norms = (means**2).sum(1)
    nearest = np.concatenate([(norms - 2 * (piece @ means.T)).argmin(1) for piece in pieces(tested)])
    return float((classes[nearest] == dataset.labels[tested]).mean())
