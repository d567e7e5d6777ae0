"""STL-10: 5,000 labelled and 100,000 unlabelled training images, 8,000 test images, 96×96 (Coates et al., 2011)."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from normatch.data.dataset import UNKNOWN, Corpus, Dataset
from normatch.data.source import Archive, Member, Source, open_members, reading_original, sources

__all__ = ["COUNTS", "read_stl10"]

SIDE = 96
IMAGE_BYTES = 3 * SIDE * SIDE
CHUNK = 1_000

COUNTS = {"train": 5_000, "test": 8_000, "unlabeled": 100_000}
"""Number of images in each file, which the files themselves do not state."""

ARCHIVE = Archive(
    "https://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz", "91f7769df0f17e558f3565bffb0c7dfb", 2_640_397_119
)
FILES = ("class_names.txt", "fold_indices.txt", "train_X.bin", "train_y.bin", "test_X.bin", "test_y.bin")
UNLABELLED = "unlabeled_X.bin"
"""By far the largest file; some keep only the labelled images."""


def read_stl10(where: Path, counts: Mapping[str, int] = COUNTS) -> Corpus:
    """Labelled training images first, then the unlabelled ones; the ten predefined folds index the labelled ones."""
    labelled = counts["train"]
    train = np.empty((labelled + counts["unlabeled"], SIDE, SIDE, 3), np.uint8)
    test = np.empty((counts["test"], SIDE, SIDE, 3), np.uint8)
    into = {"train_X.bin": train[:labelled], "test_X.bin": test, UNLABELLED: train[labelled:]}
    found: dict[str, bytes] = {}
    for member in open_members(where, ARCHIVE, "stl10_binary", FILES, [UNLABELLED]):
        with reading_original(member.place):
            if member.name in into:
                _read_images(member, into[member.name])
            found[member.name] = b"" if member.name in into else member.read()
    unlabelled = counts["unlabeled"] if UNLABELLED in found else 0
    with reading_original(where):
        names = tuple(found["class_names.txt"].decode(errors="replace").split())
        folds = tuple(np.array([line.split() for line in found["fold_indices.txt"].splitlines()], np.int64))
        train_labels, test_labels = (_labels(found[f"{part}_y.bin"]) for part in ("train", "test"))
        train_labels = np.concatenate([train_labels, np.full(unlabelled, UNKNOWN)])
        return Corpus(
            "stl10",
            Dataset(train[: labelled + unlabelled], train_labels, names),
            Dataset(test, test_labels, names),
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


def _labels(content: bytes) -> NDArray[np.int64]:
    if 0 in content:
        raise ValueError("it has the label 0, not 1 to 10")
    return np.frombuffer(content, np.uint8).astype(np.int64) - 1


sources.add(
    "stl10",
    Source(
        summary="5,000 + 100,000 unlabelled + 8,000 colour photographs in 10 classes, with 10 predefined folds",
        classes=10,
        shape=(3, SIDE, SIDE),
        read=read_stl10,
        home="https://cs.stanford.edu/~acoates/stl10/",
        archives=(ARCHIVE,),
    ),
)
