"""The types that readers return: images or feature vectors, their labels, the names of the classes; their digest."""

import hashlib
import mmap
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from normatch.errors import UserError

__all__ = ["LARGE", "MISSING", "UNKNOWN", "Corpus", "Dataset", "Inputs", "Selected", "digest", "pieces"]

UNKNOWN = -1
"""The label of a sample whose class is not known, as in scikit-learn."""

MISSING = ("nan", "na", "n/a", "null")
"""What other programs write where a value is missing."""

PIECE = 2**24
"""Bytes that are read at once where all rows are."""

RECENT = 2**14
"""Places in a file that are not asked for again, as the system most likely has them."""

LARGE = 2**22
"""More samples than this are shuffled by blocks (:class:`normatch.data.pool.Stream`), and normalised by the statistics
of some. A rule by their number, so that a run is the same on every machine, whatever its memory."""


class Selected:
    """The rows ``index`` (N,) of ``array``, images (M, H, W, C) or vectors (M, D), perhaps in a memory-mapped file.

    Indexing reads the rows in question, as a new array.
    """

    def __init__(self, array: NDArray[Any], index: NDArray[np.int64]) -> None:
        self.array, self.index = array, index

    @classmethod
    def of(cls, inputs: "Inputs") -> "Selected":
        """All rows."""
        # np.take would copy a non-contiguous array on every call.
        return inputs if isinstance(inputs, cls) else cls(np.ascontiguousarray(inputs), np.arange(len(inputs)))

    def __len__(self) -> int:
        return len(self.index)

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self), *self.array.shape[1:]

    @property
    def ndim(self) -> int:
        return self.array.ndim

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    @property
    def nbytes(self) -> int:
        return len(self) * self.array[:1].nbytes

    def __getitem__(self, rows: Any) -> NDArray[Any]:
        found: NDArray[Any] = self.array[self.index[rows]]
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self[:].astype(dtype or self.dtype, copy=False)

    def at(self, positions: NDArray[np.int64]) -> "Selected":
        """Some of these rows, which share the memory of the array."""
        return Selected(self.array, self.index[positions])

    def take(self, positions: NDArray[np.int64], out: NDArray[Any]) -> None:
        """Write the rows at ``positions`` (B,) to ``out``, (B, H, W, C) or (B, D)."""
        # With mode="raise" NumPy would buffer ``out``; "clip" writes to it directly.
        np.take(self.array, self.index[positions], axis=0, out=out, mode="clip")

    def ahead(self, neighbours: int) -> Callable[[NDArray[np.int64]], None]:
        """A function that has the system begin to read rows (B,) of a mapped file, each with so many neighbours: by
        itself it would wait for one after the other, and read up to megabytes around it. Of an array, it does nothing.
        """
        mapped: Any = self.array
        while mapped is not None and not isinstance(mapped, mmap.mmap):
            mapped = getattr(mapped, "base", None)
        if mapped is None or not hasattr(mmap, "MADV_WILLNEED"):
            return lambda positions: None
        mapped.madvise(mmap.MADV_RANDOM)
        begin = self.array.ctypes.data - np.frombuffer(mapped, np.uint8).ctypes.data
        size = neighbours * self.array[:1].nbytes
        recent: set[int] = set()

        def read(positions: NDArray[np.int64]) -> None:
            if len(recent) > RECENT:
                recent.clear()
            new = set((self.index[positions] // neighbours).tolist()) - recent
            recent.update(new)
            for some in new:
                start = (begin + some * size) // mmap.PAGESIZE * mmap.PAGESIZE
                mapped.madvise(mmap.MADV_WILLNEED, start, min(begin + (some + 1) * size, len(mapped)) - start)

        return read

    def split(self, size: int) -> Iterator[Tensor]:
        """Batches in order, like ``Tensor.split``: (≤ size, C, H, W) or (≤ size, D)."""
        for start in range(0, len(self), size):
            rows = torch.from_numpy(self[start : start + size])
            yield rows.permute(0, 3, 1, 2) if rows.ndim == 4 else rows


Inputs = NDArray[Any] | Selected


def pieces(inputs: Inputs) -> Iterator[slice]:
    """Slices that together are all rows, each of about PIECE bytes."""
    size = max(1, PIECE * len(inputs) // max(1, inputs.nbytes))
    return (slice(start, min(start + size, len(inputs))) for start in range(0, len(inputs), size))


@dataclass(frozen=True)
class Dataset:
    """Samples and their labels.

    ``inputs`` are uint8 images (N, H, W, C) with one or three channels, or float32 feature vectors (N, D);
    ``labels`` are int64 (N,), :data:`UNKNOWN` where the class is not known.
    """

    inputs: Inputs
    labels: NDArray[np.int64]
    classes: tuple[str, ...]
    files: NDArray[np.object_] | None = None
    """(N,) each sample's file, relative to the data's folder or else absolute; None if samples are not files."""

    def __post_init__(self) -> None:
        shape, n = self.inputs.shape, len(self.inputs)
        images = self.inputs.dtype == np.uint8 and len(shape) == 4 and shape[3] in (1, 3)
        vectors = self.inputs.dtype == np.float32 and len(shape) == 2
        twice = next((name for name, times in Counter(self.classes).items() if times > 1), None)
        if not (images or vectors):
            raise UserError(
                f"inputs are {self.inputs.dtype} of shape {shape}: give uint8 images (N, H, W, 1 or 3) "
                "or float32 feature vectors (N, D)"
            )
        if vectors and not np.isfinite(np.asarray(self.inputs)).all():
            raise UserError("feature vectors have values that are not finite or overflow float32: fix or remove them")
        if self.labels.dtype != np.int64 or self.labels.shape != (n,):
            raise UserError(
                f"labels are {self.labels.dtype} of shape {self.labels.shape}: give one int64 for each of the {n} "
                "inputs"
            )
        if twice is not None:
            raise UserError(f"classes has {twice!r} twice: give each class a different name")
        if "" in self.classes:
            # In predictions.csv, no name means that the class is not known.
            raise UserError(f"classes has no name for class {self.classes.index('')}: give it one")
        if n and not (self.labels.min() >= UNKNOWN and self.labels.max() < len(self.classes)):
            raise UserError(
                f"labels run from {self.labels.min()} to {self.labels.max()}: "
                f"they must lie between 0 and {len(self.classes) - 1}, or be {UNKNOWN} where unknown"
            )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def is_images(self) -> bool:
        return self.inputs.ndim == 4

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input as networks see it: (C, H, W), or (D,)."""
        if not self.is_images:
            return self.inputs.shape[1:]
        height, width, channels = self.inputs.shape[1:]
        return channels, height, width

    def view(self, at: NDArray[np.int64]) -> "Dataset":
        """The samples at the positions ``at``, in that order. Images stay where they are, perhaps in a memory-mapped
        file, and are read when asked for."""
        inputs = Selected.of(self.inputs).at(at) if self.is_images else self.inputs[at]
        return Dataset(inputs, self.labels[at], self.classes, self.files[at] if self.files is not None else None)


@dataclass(frozen=True)
class Corpus:
    """A whole data set: samples to train on, held-out samples, and the labelled subsets its authors prescribe."""

    name: str
    train: Dataset
    test: Dataset | None = None
    folds: tuple[NDArray[np.int64], ...] = ()
    """Predefined labelled subsets, as positions in ``train`` (STL-10's ten, Mini-ImageNet's label files)."""
    skipped: tuple[str, ...] = ()
    """Files left out because they could not be read, where the caller asked for that instead of an error."""
    facts: NDArray[Any] | None = None
    """Facts about the image files (:data:`normatch.data.images.FACTS`), training samples first."""
    added_labels: Mapping[int, str] = field(default_factory=dict)
    """The classes of training samples, by position, whose labels are not in the data but in label files."""

    def __post_init__(self) -> None:
        if self.test is None:
            return
        if self.test.classes != self.train.classes:
            raise UserError(
                f"data set {self.name!r} has other classes to test on than to train on: give both the same classes in "
                "the same order"
            )
        if self.test.shape != self.train.shape:
            raise UserError(
                f"data set {self.name!r} has training inputs of shape {self.train.shape}, test inputs of "
                f"{self.test.shape}: make them equal"
            )

    @property
    def parts(self) -> dict[str, Dataset]:
        """``train`` and, if there is one, ``test``."""
        return {"train": self.train} | ({"test": self.test} if self.test is not None else {})

    @property
    def labels_of_data(self) -> NDArray[np.int64]:
        """The labels of the training samples without those of label files."""
        labels = self.train.labels.copy()
        labels[list(self.added_labels)] = UNKNOWN
        return labels

    @property
    def is_testable(self) -> bool:
        """Whether it has test samples with a label: others give no accuracy."""
        return self.test is not None and bool((self.test.labels != UNKNOWN).any())


def digest(corpus: Corpus) -> str:
    """SHA-256 of the data that a run learns and is tested from: classes, labels, inputs and, of files, their names.

    Inputs of files are their decoded pixels. Of files outside the data's folder, which may move, only their own names
    count. CIFAR-10 takes a tenth of a second.
    """
    found = hashlib.sha256()
    for part in corpus.parts.values():
        names = [] if part.files is None else part.files.tolist()
        names = [os.path.basename(name) if os.path.isabs(name) else name for name in names]
        found.update(repr((part.classes, part.inputs.shape, names)).encode(errors="backslashreplace"))
        labels = corpus.labels_of_data if part is corpus.train else part.labels
        found.update(np.ascontiguousarray(labels).data)
        for rows in pieces(part.inputs):
            found.update(np.ascontiguousarray(part.inputs[rows]).data)
    return found.hexdigest()
