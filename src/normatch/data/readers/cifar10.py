"""CIFAR-10: 50,000 training and 10,000 test images of 10 classes, 32×32 (Krizhevsky, 2009).

CIFAR-100 has the same records; both are published as Python pickles and as plain bytes.
"""

import io
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from normatch.data.archive import Layout, Member, find
from normatch.data.dataset import Corpus, Dataset
from normatch.data.images import DEFAULT, Reading
from normatch.data.source import Archive, Source, sources
from normatch.errors import UserError, reason
from normatch.text import counted

__all__ = ["SITE", "Cifar", "load_plain", "read_cifar"]

SITE = "https://www.cs.toronto.edu/~kriz"
PIXELS = 3 * 32 * 32

Records = tuple[NDArray[np.uint8], NDArray[np.int64]]


@dataclass(frozen=True)
class Cifar:
    """What differs between CIFAR-10 and CIFAR-100: files, keys and counts."""

    name: str
    classes: int
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
    found = find(form.name, where, (form.python, form.binary))
    python = found.layout is form.python
    names: tuple[str, ...] = ()
    records: dict[str, Records] = {}
    for member in found.members():
        if member.name == found.layout.members[0]:
            names = _names(form, member, python=python)
        else:
            batch = member.name.removesuffix(".bin")
            read = _pickled_records if python else _binary_records
            records[batch] = _checked(form, member, form.counts[batch], *read(form, member, form.counts[batch]))
    *train, test = (records[batch] for batch in form.counts)
    return Corpus(form.name, train=_dataset(train, names), test=_dataset([test], names))


def _dataset(parts: list[Records], names: tuple[str, ...]) -> Dataset:
    labels = np.concatenate([labels for _, labels in parts])
    images = np.empty((len(labels), 32, 32, 3), np.uint8)
    start = 0
    for pixels, _ in parts:
        images[start : start + len(pixels)] = pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        start += len(pixels)
    return Dataset(images, labels, names)


def _checked(form: Cifar, member: Member, count: int, pixels: NDArray[Any], labels: NDArray[Any]) -> Records:
    if pixels.dtype != np.uint8 or pixels.shape != (count, PIXELS) or labels.shape != (count,):
        raise UserError(
            f"{member.place} has {pixels.dtype} images of shape {pixels.shape} and labels of shape {labels.shape}, not "
            f"{count:,} uint8 images of {PIXELS} bytes with a label each: it is not the original; get it again"
        )
    if labels.min() < 0 or labels.max() >= form.classes:
        raise UserError(
            f"{member.place} has labels from {labels.min()} to {labels.max()}, not 0 to {form.classes - 1}: "
            "it is damaged or not the original; get it again"
        )
    return pixels, labels.astype(np.int64)


def _binary_records(form: Cifar, member: Member, count: int) -> Records:
    width = form.label_bytes + PIXELS
    rows = np.frombuffer(member.read_all(exactly=count * width), np.uint8).reshape(count, width)
    return rows[:, form.label_bytes :], rows[:, form.label_bytes - 1].astype(np.int64)


def _pickled_records(form: Cifar, member: Member, count: int) -> tuple[NDArray[Any], NDArray[Any]]:
    # The originals have 3,105 bytes a record; old protocols escape bytes above 127.
    content = _pickled_dict(member, most=2 * count * PIXELS + (1 << 20))
    pixels, labels = content.get("data"), content.get(form.labels_key)
    if not isinstance(pixels, np.ndarray) or not isinstance(labels, list | np.ndarray):
        raise UserError(
            f"{member.place} lacks an array 'data' or a list {form.labels_key!r}: it is not the original; get it again"
        )
    try:
        return pixels, np.asarray(labels).astype(np.int64, casting="safe")
    except (TypeError, ValueError):
        raise UserError(f"{member.place}: {form.labels_key!r} are not whole numbers; get it again") from None


def _names(form: Cifar, member: Member, *, python: bool) -> tuple[str, ...]:
    names = _pickled_dict(member).get(form.names_key) if python else _text(member.read_all()).split()
    if not isinstance(names, list) or len(names) != form.classes:
        has = counted(len(names) if isinstance(names, list) else 0, "class", "classes")
        raise UserError(f"{member.place} names {has}, not {form.classes}; get it again")
    return tuple(map(_text, names))


def _pickled_dict(member: Member, most: int = 1 << 20) -> dict[str, Any]:
    content = load_plain(member.read_all(most=most), member.place)
    if not isinstance(content, dict):
        raise UserError(f"{member.place} holds a {type(content).__name__}, not a dictionary; get it again")
    return {_text(key): value for key, value in content.items()}


def _text(value: object) -> str:
    # The originals were written by Python 2, whose strings are unpickled as bytes.
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def load_plain(content: bytes, place: str) -> Any:
    """The value of a pickle of plain data: containers, numbers, text and NumPy arrays. ``place`` is for messages.

    A pickle may call any function of any module. This reader allows only the few that rebuild arrays, most of them
    replaced by functions of this module, and refuses a pickle that names any other. Strings of Python 2 become bytes.
    """
    try:
        return _PlainUnpickler(io.BytesIO(content), encoding="bytes").load()
    except UserError as error:
        raise UserError(f"{place} {error}") from None
    except Exception as error:  # a damaged pickle can raise nearly anything
        raise UserError(f"{place} is not a readable pickle: {reason(error)}; get it again") from error


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _KNOWN:
            raise UserError(f"asks for {module}.{name}, which plain data never needs: do not use this file")
        return _KNOWN[module, name]


def _empty(_type: object, _shape: object, _dtype: object) -> NDArray[Any]:
    # The pickle's next instruction sets shape, type and content.
    return np.empty(0, np.uint8)


def _from_buffer(
    buffer: bytes | bytearray, dtype: np.dtype[Any], shape: tuple[int, ...], order: Any, *axes: Any
) -> NDArray[Any]:
    if order not in ("C", "F") or any(axis is not None for axis in axes):
        raise UserError(f"has an array in memory order {order!r}: use an array in C order")
    return np.frombuffer(buffer, dtype).reshape(shape, order=order)


def _dtype(name: Any, align: object = False, copy: object = False) -> np.dtype[Any]:
    # Old pickles give 0 and 1, which NumPy 2.4 deprecates.
    made: np.dtype[Any] = np.dtype(name, align=bool(align), copy=bool(copy))
    return made


def _latin1(text: str, encoding: str) -> bytes:
    # Python 3 writes bytes in the old protocols as text to be encoded, always in latin1.
    if encoding != "latin1":
        raise UserError(f"has bytes in the encoding {encoding!r}, which no pickle of arrays has: do not use this file")
    return text.encode("latin1")


_KNOWN: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): _dtype,
    ("_codecs", "encode"): _latin1,
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _empty for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _from_buffer for core in ("core", "_core")},
}

COUNTS = {**{f"data_batch_{i}": 10_000 for i in range(1, 6)}, "test_batch": 10_000}

FORM = Cifar(
    name="cifar10",
    classes=10,
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
        summary="50,000 + 10,000 colour photographs of 10 kinds of things",
        classes=10,
        shape=(3, 32, 32),
        read=partial(read_cifar, FORM),
        home=f"{SITE}/cifar.html",
        archives=(FORM.python.archive,),
    ),
)
