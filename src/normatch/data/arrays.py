"""An ``.npz`` file of images or feature vectors and their labels."""

import itertools
import re
import zipfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from normatch.data.dataset import SETS, Corpus, Dataset
from normatch.errors import UserError, reason

__all__ = ["find_inputs", "open_npz", "read_arrays"]

NAMES = (
    ("images", "x", "x_train"),
    ("labels", "y", "y_train"),
    ("test_images", "test_x", "x_test"),
    ("test_labels", "test_y", "y_test"),
)
"""The names that the inputs and labels to train on, and those to test on, may have."""


def read_arrays(path: Path) -> Corpus:
    """Read ``images`` or ``x`` and ``labels`` or ``y`` (−1 where unknown), and optionally the same with the prefix
    ``test_`` and ``classes``, their names; also Keras' ``x_train``, ``y_train``, ``x_test`` and ``y_test``. Images are
    uint8 (N, H, W[, C]); numbers (N, D) are feature vectors."""
    with open_npz(path) as file:
        content = {name: file[name] for name in file.files}
    inputs, labels, test_inputs, test_labels = (
        content[name] if (name := _the_one(path, content, names)) else None for names in NAMES
    )
    if inputs is None or labels is None:
        has = ", ".join(sorted(content)) or "nothing"
        raise UserError(f"{path} has {has}: it must have 'images' (or 'x', 'x_train') and 'labels' (or 'y', 'y_train')")
    if test_inputs is None:
        _must_not_pass_over(path, content, inputs.ndim)
    if (test_inputs is None) != (test_labels is None):
        raise UserError(f"{path} has only one of 'test_images' and 'test_labels': give both or neither")
    parts = {str(path): (inputs, labels)}
    # An empty test set counts as none, so that some samples can be held out instead.
    if test_inputs is not None and test_labels is not None and (test_inputs.size or test_labels.size):
        parts[f"{path}, its test samples"] = (test_inputs, test_labels)
    columns, datasets = [], []
    for where, (_, given) in parts.items():
        with _named(where):
            columns.append(_as_labels(given))
    with _named(str(path)):
        classes = _classes(content.get("classes"), columns)
    for (where, (array, _)), column in zip(parts.items(), columns, strict=True):
        with _named(where):
            datasets.append(Dataset(_as_inputs(array), column, classes))
    with _named(str(path)):
        return Corpus(str(path), datasets[0], datasets[1] if datasets[1:] else None)


@contextmanager
def _named(where: str) -> Iterator[None]:
    """Say in a UserError what is wrong."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


def find_inputs(path: Path, names: Sequence[str]) -> str:
    """Which of the arrays of an .npz file are the inputs (to train on, else to test on, else its only one)."""
    found = next(filter(None, (_the_one(path, names, meant) for meant in (NAMES[0], NAMES[2]))), None)
    if found is None and len(names) != 1:
        raise UserError(
            f"{path} has {', '.join(names) or 'nothing'}: it must have 'images' (or 'x', 'x_train', 'x_test'), or one "
            "array alone"
        )
    return found or names[0]


@contextmanager
def open_npz(path: Path) -> "Iterator[np.lib.npyio.NpzFile]":
    """An .npz file of plain arrays, each read when it is asked for; UserError if it cannot be."""
    if path.exists() and not path.is_file():
        raise UserError(f"{path} is not a regular file: give an .npz file")  # a pipe might never end
    try:
        # Opened here, because NumPy does not close a file that it cannot read.
        with path.open("rb") as file:
            if not zipfile.is_zipfile(file):
                raise UserError(f"{path} is not an .npz file, or is damaged: write it with numpy.savez")
            file.seek(0)
            with np.load(file, allow_pickle=False) as content:
                yield content
    except UserError:
        raise
    except Exception as error:  # a damaged file can raise nearly anything, MemoryError if its header claims petabytes
        raise UserError(f"cannot read {path}: {reason(error)}; write it with numpy.savez, plain arrays only") from error


def _the_one(path: Path, content: Collection[str], names: tuple[str, ...]) -> str | None:
    """The one of the names that the content has, if any; UserError if it has several."""
    found = [name for name in names if name in content]
    if len(found) > 1:
        raise UserError(f"{path} has {' and '.join(map(repr, found))}, which mean the same: leave one out")
    return found[0] if found else None


def _must_not_pass_over(path: Path, content: dict[str, NDArray[Any]], dimensions: int) -> None:
    """Raise UserError if an array of samples, by its name to test on, would not be read."""
    for name in sorted(set(content) - set(itertools.chain(*NAMES))):
        if content[name].ndim == dimensions and not set(re.split(r"[^a-z]+", name.lower())).isdisjoint(SETS):
            raise UserError(
                f"{path} has {name}, which is not read: call samples to test on 'test_images' and their classes "
                "'test_labels', or leave them out"
            )


def _as_inputs(inputs: NDArray[Any]) -> NDArray[Any]:
    if inputs.ndim == 2 and inputs.dtype.kind in "fiu":
        with np.errstate(over="ignore"):
            return inputs.astype(np.float32)
    return inputs[..., None] if inputs.ndim == 3 else inputs


def _as_labels(labels: NDArray[Any]) -> NDArray[np.int64]:
    if labels.dtype.kind not in "iu":
        raise UserError(f"labels are {labels.dtype}: give whole numbers from 0, and -1 where the class is not known")
    # Keras' labels of CIFAR are a column.
    column = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if column.ndim != 1:
        raise UserError(f"labels are of shape {labels.shape}: give one whole number for each input")
    return column.astype(np.int64)


def _classes(names: NDArray[Any] | None, labels: list[NDArray[np.int64]]) -> tuple[str, ...]:
    if names is not None:
        return tuple(str(name) for name in names.reshape(-1).tolist())
    highest, samples = max(int(part.max(initial=-1)) for part in labels), sum(map(len, labels))
    if highest >= samples:
        # These are not class numbers; a name for each of so many classes could exhaust the memory.
        raise UserError(f"the highest label is {highest:,} with {samples:,} samples: number the classes from 0 on")
    return tuple(str(i) for i in range(highest + 1))
