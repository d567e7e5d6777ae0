"""An ``.npz`` file of images or feature vectors and their labels."""

import math
import struct
import zipfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from normatch.data.dataset import Corpus, Dataset
from normatch.errors import UserError, reason

__all__ = ["find_inputs", "open_npz", "read_array", "read_arrays"]

NAMES = (
    ("images", "x", "x_train"),
    ("labels", "y", "y_train"),
    ("test_images", "test_x", "x_test"),
    ("test_labels", "test_y", "y_test"),
)
"""The names that the inputs and labels to train on, and those to test on, may have."""

MAPPED = 2**30
"""Bytes of images above which they stay in the file, from which batches are read."""


def read_arrays(path: Path) -> Corpus:
    """Read ``images`` or ``x`` and ``labels`` or ``y`` (−1 where unknown), and optionally the same with the prefix
    ``test_`` and ``classes``, their names; also Keras' ``x_train``, ``y_train``, ``x_test`` and ``y_test``. Images are
    uint8 (N, H, W[, C]); numbers (N, D) are feature vectors."""
    with open_npz(path) as file:
        content = {name: _mapped_or_read(path, file, name) for name in file.files}

    found = [next((content[name] for name in names if name in content), None) for names in NAMES]
    inputs, labels, test_inputs, test_labels = found
    if inputs is None or labels is None or (test_inputs is None) != (test_labels is None):
        raise UserError(
            f"{path} has {', '.join(sorted(content)) or 'nothing'}: it must have 'images' (or 'x', 'x_train') and "
            "'labels' (or 'y', 'y_train'), and 'test_images' and 'test_labels' both or neither"
        )
    parts = [(inputs, labels)]
    # An empty test set counts as none, so that some samples can be held out instead.
    if test_inputs is not None and test_labels is not None and (test_inputs.size or test_labels.size):
        parts.append((test_inputs, test_labels))
    try:
        numbers = [_as_labels(given) for _, given in parts]
        classes = _classes(content.get("classes"), np.concatenate(numbers))
        datasets = [Dataset(_as_inputs(part[0]), own, classes) for part, own in zip(parts, numbers, strict=True)]
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    return Corpus(str(path), datasets[0], datasets[1] if datasets[1:] else None)


def find_inputs(path: Path, names: Collection[str]) -> str:
    """Which of the arrays of an .npz file are the inputs (to train on, else to test on, else its only one)."""
    found = next((name for name in (*NAMES[0], *NAMES[2]) if name in names), None)
    if found is None and len(names) != 1:
        raise UserError(
            f"{path} has {', '.join(names) or 'nothing'}: it must have 'images' (or 'x', 'x_train', 'x_test'), or one "
            "array alone"
        )
    return found or next(iter(names))


def read_array(file: "np.lib.npyio.NpzFile", name: str) -> NDArray[Any]:
    """An array of an .npz file; ValueError if it is another file, of which NumPy gives the bytes."""
    found: NDArray[Any] | bytes = file[name]
    if not isinstance(found, np.ndarray):
        raise ValueError(f"{name} is no array")
    return found


@contextmanager
def open_npz(path: Path) -> "Iterator[np.lib.npyio.NpzFile]":
    """An .npz file of plain arrays, each read when it is asked for; UserError if it cannot be."""
    try:
        # Opened here, because NumPy does not close a file that it cannot read.
        with path.open("rb") as file:
            if not zipfile.is_zipfile(file):
                raise ValueError("it is damaged, or no .npz file")
            file.seek(0)
            with np.load(file, allow_pickle=False) as content:
                yield content
    except UserError:
        raise
    except Exception as error:  # a damaged file can raise nearly anything, MemoryError if its header claims petabytes
        raise UserError(f"cannot read {path}: {reason(error)}; write it with numpy.savez, plain arrays only") from error


def _mapped_or_read(path: Path, file: "np.lib.npyio.NpzFile", name: str) -> NDArray[Any]:
    """One array of the file; images of more than MAPPED bytes are mapped unless compressed, which reads none yet."""
    assert file.zip is not None
    member = next((m for m in file.zip.infolist() if m.filename == f"{name}.npy" and m.file_size > MAPPED), None)
    if member is None or member.compress_type != zipfile.ZIP_STORED:
        return read_array(file, name)
    with file.zip.open(member) as content:
        if np.lib.format.read_magic(content) != (1, 0):
            return read_array(file, name)
        shape, fortran, kind = np.lib.format.read_array_header_1_0(content)
    if fortran or kind != np.uint8:
        return read_array(file, name)
    with path.open("rb") as raw:
        raw.seek(member.header_offset + 26)  # where a zip file has the lengths of a name and of what follows it
        name_and_more = sum(struct.unpack("<HH", raw.read(4)))
    start = member.header_offset + 30 + name_and_more + member.file_size - math.prod(shape)
    return np.asarray(np.memmap(path, np.uint8, mode="c", offset=start, shape=shape))


def _as_inputs(inputs: NDArray[Any]) -> NDArray[Any]:
    if inputs.ndim == 2 and inputs.dtype.kind in "fiu":
        with np.errstate(over="ignore"):
            return inputs.astype(np.float32)
    return inputs[..., None] if inputs.ndim == 3 else inputs


def _as_labels(labels: NDArray[Any]) -> NDArray[np.int64]:
    # Keras' labels of CIFAR are a column.
    column = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if column.dtype.kind not in "iu" or column.ndim != 1:
        raise UserError(
            f"labels are {labels.dtype} of shape {labels.shape}: give one whole number for each input, from 0 on, and "
            "-1 where the class is not known"
        )
    return column.astype(np.int64)


def _classes(names: NDArray[Any] | None, labels: NDArray[np.int64]) -> tuple[str, ...]:
    if names is not None:
        return tuple(str(name) for name in names.reshape(-1).tolist())
    highest = int(labels.max(initial=-1))
    if highest >= len(labels):
        # These are not class numbers; a name for each of so many classes could exhaust the memory.
        raise UserError(f"the highest label is {highest:,} with {len(labels):,} samples: number the classes from 0 on")
    return tuple(str(i) for i in range(highest + 1))
