"""SVHN: house numbers cropped to single digits, 73,257 + 26,032 images, 32×32 (Netzer et al., 2011)."""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from normatch.data.dataset import Corpus, Dataset
from normatch.data.source import Archive, Source, find, reading_original, sources

__all__: list[str] = []

# Over http, as its authors publish it; the checksums are verified.
SITE = "http://ufldl.stanford.edu/housenumbers"
TRAIN = Archive(f"{SITE}/train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373", 182_040_794)
TEST = Archive(f"{SITE}/test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3", 64_275_384)
EXTRA = Archive(f"{SITE}/extra_32x32.mat", "a93ce644f1a588dc4d68dda5feec44a7", 1_329_278_602)
CLASSES = tuple(map(str, range(10)))

UINT8, MATRIX, COMPRESSED = 2, 14, 15
"""Types of data elements of a MATLAB 5 file."""
LARGEST = 3 * 32 * 32 * 531_131 + 1024
"""Bytes of the largest array, that of the extra images; no more is unpacked, whatever a file holds."""


def _read(where: Path) -> Corpus:
    """Read the images; if the file of the 531,131 (easier) extra images exists, they follow the training images."""
    extra = [EXTRA] if (where / EXTRA.name).is_file() else []
    test, train, *more = map(_read_mat, find(where, [TEST, TRAIN, *extra]))
    for part in more:
        both = np.concatenate([train.inputs, part.inputs]), np.concatenate([train.labels, part.labels])
        train = Dataset(*both, CLASSES)
    return Corpus("svhn", train, test)


def _read_mat(path: Path) -> Dataset:
    with reading_original(path):
        content = dict(_arrays(path.read_bytes()))
        # The digit 0 has the label 10.
        labels = content["y"].reshape(-1).astype(np.int64) % 10
        return Dataset(np.ascontiguousarray(content["X"].transpose(3, 0, 1, 2)), labels, CLASSES)


def _arrays(file: bytes) -> Iterator[tuple[str, NDArray[np.uint8]]]:
    """The arrays of bytes in a MATLAB 5 file, by name. Not by scipy.io.loadmat, which a damaged file can crash."""
    for kind, content in _elements(memoryview(file)[128:]):
        if kind == COMPRESSED:
            packed = zlib.decompressobj()
            (kind, content), *_ = _elements(memoryview(packed.decompress(content, LARGEST)))
        if kind == MATRIX:
            # Of the flags, no bit matters to an array of real numbers.
            (_, _), (_, dimensions), (_, name), (number, values), *_ = _elements(content)
            if number != UINT8:
                raise ValueError(f"an array has numbers of type {number}, not bytes")
            array = np.frombuffer(values, np.uint8).reshape(np.frombuffer(dimensions, "<i4"), order="F")
            yield bytes(name).decode("ascii"), array


def _elements(content: memoryview) -> Iterator[tuple[int, memoryview]]:
    """The type and the content of each data element: after 8 bytes of type and size or, if it is small, within them."""
    at = 0
    while at < len(content):
        kind, size = struct.unpack_from("<II", content, at)
        small = kind >> 16
        begin, size = (at + 4, small) if small else (at + 8, size)
        if size > (4 if small else len(content) - begin):
            raise ValueError("an element is longer than what holds it")
        yield kind & 0xFFFF, content[begin : begin + size]
        # All but compressed ones are filled up to a multiple of 8 bytes.
        at = at + 8 if small else begin + size + (0 if kind == COMPRESSED else -size % 8)


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
