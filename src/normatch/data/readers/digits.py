"""scikit-learn's embedded digits: 1,797 scans of handwritten digits, 8×8, no download (Alpaydin & Kaynak, 1998)."""

from pathlib import Path

import numpy as np

from normatch.data.dataset import Corpus, Dataset
from normatch.data.source import Source, sources

__all__: list[str] = []


def _read(_where: Path) -> Corpus:
    """All digits as training samples; a run holds out its test set by seed."""
    from sklearn.datasets import load_digits  # a second of import that only this data set needs

    bunch = load_digits()
    images = np.rint(bunch.images[..., None] * (255 / 16)).astype(np.uint8)
    return Corpus("digits", Dataset(images, bunch.target.astype(np.int64), tuple(map(str, range(10)))))


sources.add(
    "digits",
    Source(
        summary="1,797 small grey handwritten digits, part of scikit-learn: nothing to download",
        classes=10,
        shape=(1, 8, 8),
        read=_read,
        home="https://scikit-learn.org/stable/modules/generated/sklearn.datasets.load_digits.html",
        embedded=True,
    ),
)
