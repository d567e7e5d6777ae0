"""Vectors of class names: the mean of the word vectors of each name."""

import re
from collections.abc import Sequence
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from normatch.errors import UserError, reason

__all__ = ["class_vectors", "groups_of"]

SHIPPED = Path(__file__).parent.parent / "class_vectors.npz"
"""100-dimensional GloVe vectors (public domain) of the words in the class names of CIFAR-10, CIFAR-100, STL-10, SVHN,
MNIST, Fashion-MNIST and Mini-ImageNet. ``names`` and ``meanings`` say what names that are no words stand for: digits,
the WordNet numbers of Mini-ImageNet's classes, and "komondor", a dog that GloVe does not know."""


def class_vectors(classes: Sequence[str], file: Path | None = None) -> Tensor:
    """(K, D) unit vectors of the class names, by the word vectors in ``file``: an .npz with words (n,), which may be
    whole names, and vectors (n, D). Without one those that the package has.

    Their mean is subtracted before they are scaled: word vectors of one subject have most of their direction in common,
    such as those of the ten digits, whose cosines are 0.82 on average without it and 0.05 with it.
    """
    table, meaning = _read(file or SHIPPED)
    vectors = []
    for name in classes:
        spelt = name.strip().lower()
        words = _words(meaning.get(spelt, spelt), table)
        if not words or not all(word in table for word in words):
            raise UserError(
                f"class {name!r} has no word vector in {file or 'the words that normatch ships'}: give "
                "--settings.vectors an .npz with arrays words (n,), which may be whole names, and vectors (n, d)"
            )
        vectors.append(np.mean([table[word] for word in words], axis=0))
    found = torch.from_numpy(np.stack(vectors))
    return F.normalize(found - found.mean(0), dim=1)


def groups_of(vectors: Tensor, distance: float) -> Tensor:
    """(K, G) membership of the classes in groups, by unit vectors (K, D): those within a cosine ``distance`` of each
    other, and those that such ones connect: DBSCAN's clusters, if one class is enough for a cluster."""
    count, group = connected_components((1 - vectors @ vectors.T).numpy() <= distance, directed=False)
    return F.one_hot(torch.from_numpy(group).long(), count).float()


def _words(name: str, table: dict[str, NDArray[np.float32]]) -> list[str]:
    """The words of a name, or the name itself, if it is in the table."""
    if name in table:
        return [name]
    parts = [part for part in re.split(r"[\s_/]+", name) if part]
    return [word for part in parts for word in ([part] if part in table else re.split("-+", part))]


def _read(file: Path) -> tuple[dict[str, NDArray[np.float32]], dict[str, str]]:
    try:
        with np.load(file) as content:
            words, vectors = [str(word).lower() for word in content["words"]], content["vectors"].astype(np.float32)
            names = zip(content["names"].tolist(), content["meanings"].tolist(), strict=True) if file == SHIPPED else ()
            if vectors.ndim != 2 or len(words) != len(vectors) or not np.isfinite(vectors).all():
                raise ValueError(f"{len(words)} words, vectors of shape {vectors.shape}, or some not finite")
            return dict(zip(words, vectors, strict=True)), dict(names)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, BadZipFile) as error:
        raise UserError(
            f"settings.vectors {file} cannot be read ({reason(error)}): give an .npz with arrays words (n,) and "
            "vectors (n, d)"
        ) from error
