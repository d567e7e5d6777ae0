"""STL-10: 5,000 labelled and 100,000 unlabelled training images, 8,000 test images, 96×96 (Coates et al., 2011)."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from normatch.data.archive import Layout, Member, find
from normatch.data.dataset import UNKNOWN, Corpus, Dataset
from normatch.data.images import DEFAULT, Reading
from normatch.data.source import Archive, Source, sources
from normatch.errors import UserError
from normatch.text import counted

__all__ = ["Counts", "read_stl10"]

SIDE = 96
IMAGE_BYTES = 3 * SIDE * SIDE
CHUNK = 1_000

LAYOUT = Layout(
    Archive(
        "https://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz",
        "stl10_binary.tar.gz",
        "91f7769df0f17e558f3565bffb0c7dfb",
        2_640_397_119,
    ),
    folder="stl10_binary",
    members=("class_names.txt", "fold_indices.txt", "train_X.bin", "train_y.bin", "test_X.bin", "test_y.bin"),
    # By far the largest file; some keep only the labelled images.
    optional=("unlabeled_X.bin",),
)


@dataclass(frozen=True)
class Counts:
    """Number of images in each file, which the files themselves do not state."""

    train: int = 5_000
    test: int = 8_000
    unlabelled: int = 100_000
    fold: int = 1_000


def read_stl10(where: Path, _reading: Reading = DEFAULT, *, counts: Counts | None = None) -> Corpus:
    """Labelled training images first, then the unlabelled ones; the ten predefined folds index the labelled ones."""
    counts = counts or Counts()
    train = np.empty((counts.train + counts.unlabelled, SIDE, SIDE, 3), np.uint8)
    test = np.empty((counts.test, SIDE, SIDE, 3), np.uint8)
    into = {"train_X.bin": train[: counts.train], "test_X.bin": test, "unlabeled_X.bin": train[counts.train :]}
    labels: dict[str, NDArray[np.int64]] = {}
    names: tuple[str, ...] = ()
    folds: tuple[NDArray[np.int64], ...] = ()
    unlabelled = 0
    for member in find("stl10", where, (LAYOUT,)).members():
        if member.name in into:
            _read_images(member, into[member.name])
            unlabelled += counts.unlabelled if member.name == "unlabeled_X.bin" else 0
        elif member.name == "class_names.txt":
            names = tuple(member.read_all().decode(errors="replace").split())
            if len(names) != 10:
                raise UserError(f"{member.place} names {counted(len(names), 'class', 'classes')}, not 10; get it again")
        elif member.name == "fold_indices.txt":
            folds = _read_folds(member, counts)
        else:
            labels[member.name] = _read_labels(member, counts.train if member.name == "train_y.bin" else counts.test)
    train_labels = np.concatenate([labels["train_y.bin"], np.full(unlabelled, UNKNOWN, np.int64)])
    return Corpus(
        "stl10",
        Dataset(train[: len(train_labels)], train_labels, names),
        Dataset(test, labels["test_y.bin"], names),
        folds,
    )


def _read_images(member: Member, out: NDArray[np.uint8]) -> None:
    member.expect(len(out) * IMAGE_BYTES)
    # In pieces, so that the unlabelled images (2.8 GB) are in memory only once.
    for start in range(0, len(out), CHUNK):
        rows = out[start : start + CHUNK]
        pixels = np.frombuffer(member.read(len(rows) * IMAGE_BYTES), np.uint8)
        # Each channel is stored column by column.
        rows[:] = pixels.reshape(-1, 3, SIDE, SIDE).transpose(0, 3, 2, 1)


def _read_labels(member: Member, count: int) -> NDArray[np.int64]:
    labels = np.frombuffer(member.read_all(exactly=count), np.uint8).astype(np.int64) - 1
    if labels.min() < 0 or labels.max() > 9:
        raise UserError(
            f"{member.place} has labels from {labels.min() + 1} to {labels.max() + 1}, not 1 to 10; get it again"
        )
    return labels


def _read_folds(member: Member, counts: Counts) -> tuple[NDArray[np.int64], ...]:
    lines = member.read_all().decode(errors="replace").splitlines()
    try:
        folds = [np.array(line.split(), np.int64) for line in lines if line.strip()]
    except ValueError:
        folds = []
    if len(folds) != 10 or any(len(f) != counts.fold or f.min() < 0 or f.max() >= counts.train for f in folds):
        raise UserError(
            f"{member.place} does not hold 10 lines of {counts.fold:,} positions below {counts.train:,}; get it again"
        )
    return tuple(folds)


sources.add(
    "stl10",
    Source(
        name="stl10",
        summary="5,000 + 100,000 unlabelled + 8,000 colour photographs of 10 kinds of things, with 10 predefined folds",
        classes=10,
        shape=(3, SIDE, SIDE),
        read=read_stl10,
        home="https://cs.stanford.edu/~acoates/stl10/",
        archives=(LAYOUT.archive,),
    ),
)
