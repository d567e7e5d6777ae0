"""SVHN: house numbers cropped to single digits, 73,257 + 26,032 images, 32×32 (Netzer et al., 2011)."""

from pathlib import Path

import numpy as np

from normatch.data.dataset import Corpus, Dataset
from normatch.data.source import Archive, Source, find, reading_original, sources

__all__: list[str] = []

# Over http, as its authors publish it; the checksums are verified.
SITE = "http://ufldl.stanford.edu/housenumbers"
TRAIN = Archive(f"{SITE}/train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373", 182_040_794)
TEST = Archive(f"{SITE}/test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3", 64_275_384)
EXTRA = Archive(f"{SITE}/extra_32x32.mat", "a93ce644f1a588dc4d68dda5feec44a7", 1_329_278_602)
CLASSES = tuple(map(str, range(10)))


def _read(where: Path) -> Corpus:
    """Read the images; if the file of the 531,131 (easier) extra images exists, they follow the training images."""
    extra = [EXTRA] if (where / EXTRA.name).is_file() else []
    test, train, *more = map(_read_mat, find(where, [TEST, TRAIN, *extra]))
    for part in more:
        both = np.concatenate([train.inputs, part.inputs]), np.concatenate([train.labels, part.labels])
        train = Dataset(*both, CLASSES)
    return Corpus("svhn", train, test)


def _read_mat(path: Path) -> Dataset:
    from scipy.io import loadmat

    with reading_original(path):
        content = loadmat(path, variable_names=("X", "y"))
        # The digit 0 has the label 10.
        labels = content["y"].reshape(-1).astype(np.int64) % 10
        return Dataset(np.ascontiguousarray(content["X"].transpose(3, 0, 1, 2)), labels, CLASSES)


sources.add(
    "svhn",
    Source(
        summary="73,257 + 26,032 digits of house numbers in colour; extra_32x32.mat adds 531,131 if you put it there",
        classes=10,
        shape=(3, 32, 32),
        read=_read,
        home=f"{SITE}/",
        archives=(TRAIN, TEST),
    ),
)
