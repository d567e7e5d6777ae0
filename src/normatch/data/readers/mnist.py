"""MNIST (LeCun et al., 1998) and Fashion-MNIST (Xiao et al., 2017): 60,000 + 10,000 grey images, 28×28, of 10 classes.

Their files are gzipped idx files: a header with the dimensions, then bytes.
"""

import gzip
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from normatch.data.dataset import Corpus, Dataset
from normatch.data.source import Archive, Source, find, reading_original, sources

__all__ = ["LARGEST", "read_idx"]

FILES = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
SIDE = 28
LARGEST = 16 + 60_000 * SIDE * SIDE
"""Bytes of the largest file; no more is read, whatever it holds."""


def _read(name: str, classes: tuple[str, ...], archives: tuple[Archive, ...], where: Path) -> Corpus:
    train, train_labels, test, test_labels = map(read_idx, find(where, archives))
    with reading_original(where):
        return Corpus(
            name,
            Dataset(train[..., None].copy(), train_labels.astype(np.int64), classes),
            Dataset(test[..., None].copy(), test_labels.astype(np.int64), classes),
        )


def read_idx(path: Path) -> NDArray[Any]:
    """The array of bytes in a gzipped idx file."""
    with reading_original(path), gzip.open(path) as file:
        content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise ValueError(f"it holds more than the {LARGEST:,} bytes of the largest original")
        if content[:3] != bytes((0, 0, 8)):  # 8 is the format's code for unsigned bytes
            raise ValueError("it is not an idx file of bytes")
        dimensions = content[3]
        shape = np.frombuffer(content, ">u4", dimensions, offset=4).tolist()
        return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def _add(
    name: str, summary: str, classes: tuple[str, ...], home: str, site: str, published: tuple[tuple[str, int], ...]
) -> None:
    """Add a data set whose FILES have these checksums and sizes."""
    archives = tuple(Archive(f"{site}/{file}-ubyte.gz", *known) for file, known in zip(FILES, published, strict=True))
    read = partial(_read, name, classes, archives)
    sources.add(name, Source(summary, 10, (1, SIDE, SIDE), read, home, archives))


_add(
    "mnist",
    summary="60,000 + 10,000 grey handwritten digits",
    classes=tuple(map(str, range(10))),
    home="http://yann.lecun.com/exdb/mnist/",
    # The authors' own site no longer serves the files; this mirror has the originals, md5 for md5.
    site="https://ossci-datasets.s3.amazonaws.com/mnist",
    published=(
        ("f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422),
        ("d53e105ee54ea40749a09fcbcd1e9432", 28_881),
        ("9fb629c4189551a2d022fa330f9573f3", 1_648_877),
        ("ec29112dd5afa0611ce80d1b7f02629c", 4_542),
    ),
)

_add(
    "fashion-mnist",
    summary="60,000 + 10,000 grey pictures of clothes in 10 classes",
    # The files hold numbers only; the names are those of the authors' table.
    classes=(
        "t-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"
    ),
    home="https://github.com/zalandoresearch/fashion-mnist",
    site="https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion",
    published=(
        ("8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26_421_880),
        ("25c81989df183df01b3e8a0aad5dffbe", 29_515),
        ("bef4ecab320f06d8554ea6380940ec79", 4_422_102),
        ("bb300cfdad3c16e7a12a480ee83cd310", 5_148),
    ),
)  # fmt: skip
