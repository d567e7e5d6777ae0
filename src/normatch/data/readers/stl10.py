"""STL-10: 5,000 labelled and 100,000 unlabelled training images, 8,000 test images, 96×96 (Coates et al., 2011)."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from normatch.data.dataset import UNKNOWN, Corpus, Dataset
from normatch.data.images import DEFAULT, Reading
from normatch.data.source import Archive, Layout, Member, Source, open_members, reading_original, sources

__all__ = ["COUNTS", "read_stl10"]

SIDE = 96
IMAGE_BYTES = 3 * SIDE * SIDE
CHUNK = 1_000

COUNTS = {"train": 5_000, "test": 8_000, "unlabeled": 100_000}
"""Number of images in each file, which the files themselves do not state."""

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


def read_stl10(where: Path, _reading: Reading = DEFAULT, *, counts: Mapping[str, int] = COUNTS) -> Corpus:
    """Labelled training images first, then the unlabelled ones; the ten predefined folds index the labelled ones."""
    labelled = counts["train"]
    train = np.empty((labelled + counts["unlabeled"], SIDE, SIDE, 3), np.uint8)
    test = np.empty((counts["test"], SIDE, SIDE, 3), np.uint8)
    into = {"train_X.bin": train[:labelled], "test_X.bin": test, "unlabeled_X.bin": train[labelled:]}
    labels: dict[str, NDArray[np.int64]] = {"unlabeled_X.bin": np.zeros(0, np.int64)}
    names: tuple[str, ...] = ()
    folds: tuple[NDArray[np.int64], ...] = ()
    _, members = open_members("stl10", where, (LAYOUT,))
    for member in members:
        with reading_original(member.place):
            if member.name in into:
                _read_images(member, into[member.name])
                if member.name == "unlabeled_X.bin":
                    labels[member.name] = np.full(counts["unlabeled"], UNKNOWN)
            elif member.name == "class_names.txt":
                names = tuple(member.read().decode(errors="replace").split())
            elif member.name == "fold_indices.txt":
                folds = tuple(np.array([line.split() for line in member.read().splitlines()], np.int64))
            else:
                labels[member.name] = _read_labels(member)
    train_labels = np.concatenate([labels["train_y.bin"], labels["unlabeled_X.bin"]])
    with reading_original(where):
        return Corpus(
            "stl10",
            Dataset(train[: labelled + len(labels["unlabeled_X.bin"])], train_labels, names),
            Dataset(test, labels["test_y.bin"], names),
            folds,
        )


def _read_images(member: Member, out: NDArray[np.uint8]) -> None:
    if member.size != out.nbytes:
        raise ValueError(f"it has {member.size:,} bytes, {out.nbytes:,} are expected")
    # In pieces, so that the unlabelled images (2.8 GB) are in memory only once.
    for start in range(0, len(out), CHUNK):
        rows = out[start : start + CHUNK]
        pixels = np.frombuffer(member.stream.read(len(rows) * IMAGE_BYTES), np.uint8)
        # Each channel is stored column by column.
        rows[:] = pixels.reshape(-1, 3, SIDE, SIDE).transpose(0, 3, 2, 1)


def _read_labels(member: Member) -> NDArray[np.int64]:
    labels = np.frombuffer(member.read(), np.uint8).astype(np.int64) - 1
    if labels.min() < 0:
        raise ValueError("it has the label 0, not 1 to 10")
    return labels


sources.add(
    "stl10",
    Source(
        name="stl10",
        summary="5,000 + 100,000 unlabelled + 8,000 colour photographs in 10 classes, with 10 predefined folds",
        classes=10,
        shape=(3, SIDE, SIDE),
        read=read_stl10,
        home="https://cs.stanford.edu/~acoates/stl10/",
        archives=(LAYOUT.archive,),
    ),
)
