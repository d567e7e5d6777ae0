"""CIFAR-10: 50,000 training and 10,000 test images of 10 classes, 32×32 (Krizhevsky, 2009).

CIFAR-100 has the same records; both are published as Python pickles and as plain bytes.
"""

import io
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from normatch.data.dataset import Corpus, Dataset
from normatch.data.images import DEFAULT, Reading
from normatch.data.source import Archive, Layout, Member, Source, open_members, reading_original, sources

__all__ = ["SITE", "Cifar", "load_plain", "read_cifar"]

SITE = "https://www.cs.toronto.edu/~kriz"
PIXELS = 3 * 32 * 32

Records = tuple[NDArray[np.uint8], NDArray[np.int64]]


@dataclass(frozen=True)
class Cifar:
    """What differs between CIFAR-10 and CIFAR-100: files, keys and counts."""

    name: str
    counts: Mapping[str, int]
    """The number of records in each file; the last file is the test set. The binary form has the suffix ``.bin``."""
    python: Layout
    """The first of its members has the classes' names, under the key ``names_key``."""
    names_key: str
    labels_key: str
    binary: Layout
    """The first of its members has the classes' names, one per line."""
    label_bytes: int
    """Number of labels, one byte each, at the start of a binary record; the last is the class."""


def read_cifar(form: Cifar, where: Path, _reading: Reading = DEFAULT) -> Corpus:
    layout, members = open_members(form.name, where, (form.python, form.binary))
    names: Sequence[object] = ()
    records: dict[str, Records] = {}
    for member in members:
        with reading_original(member.place):
            if member.name == layout.members[0]:
                names = _pickled(member)[form.names_key] if layout is form.python else member.read().split()
            else:
                batch = member.name.removesuffix(".bin")
                read = _pickled_records if layout is form.python else _binary_records
                records[batch] = read(form, member, form.counts[batch])
    *train, test = (records[batch] for batch in form.counts)
    with reading_original(where):
        classes = tuple(map(_text, names))
        return Corpus(form.name, _dataset(train, classes), _dataset([test], classes))


def _dataset(parts: Sequence[Records], classes: tuple[str, ...]) -> Dataset:
    images = np.concatenate([pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1) for pixels, _ in parts])
    return Dataset(np.ascontiguousarray(images), np.concatenate([labels for _, labels in parts]), classes)


def _binary_records(form: Cifar, member: Member, count: int) -> Records:
    width = form.label_bytes + PIXELS
    rows = np.frombuffer(member.read(count * width), np.uint8).reshape(count, width)
    return rows[:, form.label_bytes :], rows[:, form.label_bytes - 1].astype(np.int64)


def _pickled_records(form: Cifar, member: Member, count: int) -> Records:
    # The originals have 3,105 bytes a record.
    content = _pickled(member, most=2 * count * PIXELS + (1 << 20))
    return content["data"].reshape(count, PIXELS), np.array(content[form.labels_key], np.int64)


def _pickled(member: Member, most: int = 1 << 20) -> dict[str, Any]:
    return {_text(key): value for key, value in load_plain(member.read(most)).items()}


def _text(value: object) -> str:
    # The originals were written by Python 2, whose strings are unpickled as bytes.
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def load_plain(content: bytes) -> Any:
    """The value of a pickle of plain data: containers, numbers, text and arrays of an old NumPy, as in the originals.

    A pickle may call any function of any module. This reader allows only those that rebuild arrays, and refuses a
    pickle that names any other. Strings of Python 2 become bytes.
    """
    return _PlainUnpickler(io.BytesIO(content), encoding="bytes").load()


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _KNOWN:
            raise ValueError(f"it asks for {module}.{name}, which plain data never needs")
        return _KNOWN[module, name]


def _empty(_type: object, _shape: object, _dtype: object) -> NDArray[Any]:
    # The pickle's next instruction sets shape, type and content.
    return np.empty(0, np.uint8)


def _dtype(name: Any, align: object = False, copy: object = False) -> np.dtype[Any]:
    # Old pickles give 0 and 1, which NumPy 2.4 deprecates.
    made: np.dtype[Any] = np.dtype(name, align=bool(align), copy=bool(copy))
    return made


_KNOWN: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): _dtype,
    ("numpy.core.multiarray", "_reconstruct"): _empty,
}

COUNTS = {**{f"data_batch_{i}": 10_000 for i in range(1, 6)}, "test_batch": 10_000}

FORM = Cifar(
    name="cifar10",
    counts=COUNTS,
    python=Layout(
        Archive(
            f"{SITE}/cifar-10-python.tar.gz", "cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a", 170_498_071
        ),
        folder="cifar-10-batches-py",
        members=("batches.meta", *COUNTS),
    ),
    names_key="label_names",
    labels_key="labels",
    binary=Layout(
        Archive(
            f"{SITE}/cifar-10-binary.tar.gz", "cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530", 170_052_171
        ),
        folder="cifar-10-batches-bin",
        members=("batches.meta.txt", *(f"{name}.bin" for name in COUNTS)),
    ),
    label_bytes=1,
)

sources.add(
    "cifar10",
    Source(
        name="cifar10",
        summary="50,000 + 10,000 colour photographs in 10 classes",
        classes=10,
        shape=(3, 32, 32),
        read=partial(read_cifar, FORM),
        home=f"{SITE}/cifar.html",
        archives=(FORM.python.archive,),
    ),
)
