"""MNIST: 60,000 training and 10,000 test images of handwritten digits, 28×28, grey (LeCun et al., 1998).

Its idx files, which Fashion-MNIST has too, are a header with the dimensions, then bytes, often gzipped.
"""

import gzip
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from normatch.data.dataset import Corpus, Dataset
from normatch.data.images import DEFAULT, Reading
from normatch.data.source import Archive, Source, pick, reading_original, sources, verify

__all__ = ["idx_archives", "read_idx", "read_idx_corpus"]

STEMS = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
SIDE = 28
LARGEST = 16 + 60_000 * SIDE * SIDE
"""Bytes of the largest file; of a gzipped one no more is read, whatever it holds."""


def idx_archives(site: str, published: Sequence[tuple[str, int]]) -> tuple[Archive, ...]:
    """The four files of such a data set with the (md5, size) of each: training images, training labels, then test."""
    return tuple(
        Archive(f"{site}/{stem}.gz", f"{stem}.gz", md5, size)
        for stem, (md5, size) in zip(STEMS, published, strict=True)
    )


def read_idx_corpus(
    name: str, classes: tuple[str, ...], archives: tuple[Archive, ...], where: Path, _reading: Reading = DEFAULT
) -> Corpus:
    paths = pick(name, where, [(archive.name.removesuffix(".gz"), archive.name) for archive in archives])
    for path, archive in zip(paths, archives, strict=True):
        if path.name == archive.name:
            verify(path, archive, name)
    train, train_labels, test, test_labels = map(read_idx, paths)
    with reading_original(where):
        return Corpus(
            name,
            Dataset(train[..., None].copy(), train_labels.astype(np.int64), classes),
            Dataset(test[..., None].copy(), test_labels.astype(np.int64), classes),
        )


def read_idx(path: Path) -> NDArray[Any]:
    """The array of bytes in an idx file, gzipped if its name says so."""
    with reading_original(path):
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise ValueError(f"it holds more than the {LARGEST:,} bytes of the largest original")
        if content[:3] != bytes((0, 0, 8)):  # 8 is the format's code for unsigned bytes
            raise ValueError("it is not an idx file of bytes")
        dimensions = content[3]
        shape = np.frombuffer(content, ">u4", dimensions, offset=4).tolist()
        return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


ARCHIVES = idx_archives(
    # The authors' own site no longer serves the files; this mirror has the originals, md5 for md5.
    "https://ossci-datasets.s3.amazonaws.com/mnist",
    [
        ("f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422),
        ("d53e105ee54ea40749a09fcbcd1e9432", 28_881),
        ("9fb629c4189551a2d022fa330f9573f3", 1_648_877),
        ("ec29112dd5afa0611ce80d1b7f02629c", 4_542),
    ],
)

sources.add(
    "mnist",
    Source(
        name="mnist",
        summary="60,000 + 10,000 grey handwritten digits",
        classes=10,
        shape=(1, 28, 28),
        read=partial(read_idx_corpus, "mnist", tuple(map(str, range(10))), ARCHIVES),
        home="http://yann.lecun.com/exdb/mnist/",
        archives=ARCHIVES,
    ),
)
