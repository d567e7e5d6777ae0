"""The files of CIFAR-10 and CIFAR-100: the same records as Python pickles or as plain bytes."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from normatch.data.archive import Layout, Member, find
from normatch.data.dataset import Corpus, Dataset
from normatch.data.formats.pickled import load_plain
from normatch.data.reading import DEFAULT, Reading
from normatch.errors import UserError
from normatch.text import counted

__all__ = ["Batch", "CifarForm", "read_cifar"]

PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class Batch:
    """A file of ``count`` records; the binary form has the suffix ``.bin``."""

    name: str
    count: int


@dataclass(frozen=True)
class CifarForm:
    """What differs between CIFAR-10 and CIFAR-100: files, keys and counts."""

    name: str
    classes: int
    train: tuple[Batch, ...]
    test: Batch
    python: Layout
    python_names: str
    """The pickle that has the classes' names, under the key ``names_key``."""
    names_key: str
    labels_key: str
    binary: Layout
    binary_names: str
    """The text file that has the classes' names, one per line."""
    label_bytes: int
    """Number of labels, one byte each, at the start of a binary record; the last is the class."""


Records = tuple[NDArray[np.uint8], NDArray[np.int64]]


def read_cifar(form: CifarForm, where: Path, _reading: Reading = DEFAULT) -> Corpus:
    found = find(form.name, where, (form.python, form.binary))
    batches = (*form.train, form.test)
    parse_names: Callable[[CifarForm, Member], tuple[str, ...]]
    parse_batch: Callable[[CifarForm, Member, Batch], tuple[NDArray[Any], NDArray[Any]]]
    if found.layout is form.python:
        by_name = {batch.name: batch for batch in batches}
        names_file, parse_names, parse_batch = form.python_names, _pickled_names, _pickled_records
    else:
        by_name = {f"{batch.name}.bin": batch for batch in batches}
        names_file, parse_names, parse_batch = form.binary_names, _text_names, _binary_records
    names: tuple[str, ...] = ()
    records: dict[Batch, Records] = {}
    for member in found.members():
        if member.name == names_file:
            names = parse_names(form, member)
        else:
            batch = by_name[member.name]
            records[batch] = _checked(form, member, batch, *parse_batch(form, member, batch))
    return Corpus(
        form.name,
        train=_dataset([records[batch] for batch in form.train], names),
        test=_dataset([records[form.test]], names),
    )


def _dataset(parts: list[Records], names: tuple[str, ...]) -> Dataset:
    labels = np.concatenate([labels for _, labels in parts])
    images = np.empty((len(labels), 32, 32, 3), np.uint8)
    start = 0
    for pixels, _ in parts:
        images[start : start + len(pixels)] = pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        start += len(pixels)
    return Dataset(images, labels, names)


def _checked(form: CifarForm, member: Member, batch: Batch, pixels: NDArray[Any], labels: NDArray[Any]) -> Records:
    if pixels.dtype != np.uint8 or pixels.shape != (batch.count, PIXELS) or labels.shape != (batch.count,):
        raise UserError(
            f"{member.place} has {pixels.dtype} images of shape {pixels.shape} and labels of shape {labels.shape}, not "
            f"{batch.count:,} uint8 images of {PIXELS} bytes with a label each: it is not the original; get it again"
        )
    if labels.min() < 0 or labels.max() >= form.classes:
        raise UserError(
            f"{member.place} has labels from {labels.min()} to {labels.max()}, not 0 to {form.classes - 1}: "
            "it is damaged or not the original; get it again"
        )
    return pixels, labels.astype(np.int64)


def _binary_records(form: CifarForm, member: Member, batch: Batch) -> Records:
    width = form.label_bytes + PIXELS
    member.expect(batch.count * width)
    rows = np.frombuffer(member.read(), np.uint8).reshape(batch.count, width)
    return rows[:, form.label_bytes :], rows[:, form.label_bytes - 1].astype(np.int64)


def _pickled_records(form: CifarForm, member: Member, _batch: Batch) -> tuple[NDArray[Any], NDArray[Any]]:
    content = _pickled_dict(member)
    pixels, labels = content.get("data"), content.get(form.labels_key)
    if not isinstance(pixels, np.ndarray) or not isinstance(labels, list | np.ndarray):
        raise UserError(
            f"{member.place} lacks an array 'data' or a list {form.labels_key!r}: it is not the original; get it again"
        )
    try:
        return pixels, np.asarray(labels).astype(np.int64, casting="safe")
    except (TypeError, ValueError):
        raise UserError(f"{member.place}: {form.labels_key!r} are not whole numbers; get it again") from None


def _pickled_dict(member: Member) -> dict[str, Any]:
    content = load_plain(member.read(), member.place)
    if not isinstance(content, dict):
        raise UserError(f"{member.place} holds a {type(content).__name__}, not a dictionary; get it again")
    return {_text(key): value for key, value in content.items()}


def _pickled_names(form: CifarForm, member: Member) -> tuple[str, ...]:
    names = _pickled_dict(member).get(form.names_key)
    return _named(form, member, [_text(name) for name in names] if isinstance(names, list) else [])


def _text_names(form: CifarForm, member: Member) -> tuple[str, ...]:
    return _named(form, member, _text(member.read()).split())


def _named(form: CifarForm, member: Member, names: list[str]) -> tuple[str, ...]:
    if len(names) != form.classes:
        raise UserError(
            f"{member.place} names {counted(len(names), 'class', 'classes')}, not {form.classes}; get it again"
        )
    return tuple(names)


def _text(value: object) -> str:
    # The originals were written by Python 2, whose strings are unpickled as bytes.
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
