"""The items whose labels a run uses, where files or earlier runs name them in place of a draw."""

import csv
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from normatch.config import Config
from normatch.data import Corpus
from normatch.data.manifest import is_manifest
from normatch.errors import UserError, reason
from normatch.training.given import labels_in, with_labels
from normatch.training.run import Run

__all__ = ["must_be_runs_on", "named_items"]

Indices = NDArray[np.int64]

COLUMN = "item"
"""Of a table of ``normatch suggest``."""

REMEDY = f"give whole numbers, one a line, or a .csv table with the column {COLUMN}, or of files with path and label"


def named_items(places: Sequence[Path], corpus: Corpus) -> Indices:
    """The positions among the training items of ``corpus`` that all places name together, each once.

    A place is the folder of an earlier run, whose labelled items count; a table of ``normatch suggest``: one with the
    column ``item``, or a manifest, of which the items with a label count; a text file of positions; or an .npy file of
    them.
    """
    return np.unique(np.concatenate([_items(place.expanduser(), corpus) for place in places]))


def must_be_runs_on(config: Config, corpus: Corpus) -> None:
    """Raise UserError if what is ``labelled`` has a run on other data, in which a position is another item."""
    for place in (place.expanduser() for place in config.labelled):
        if place.is_dir():
            run = Run.open(place, config.unlabelled)
            data = replace(corpus, train=replace(corpus.train, labels=corpus.labels_of_data))
            seen = with_labels(data, run.given)
            if not (run.has_files_of(seen) and run.has_data_of(seen)):
                raise UserError(
                    f"labelled is {place}, a run on other items than those of {corpus.name} here: give a run on the "
                    "same data, with the same held-out items"
                )


def _items(place: Path, corpus: Corpus) -> Indices:
    if is_manifest(place):
        given = labels_in(place, corpus)
        assert corpus.train.files is not None  # or a table of files would have been refused
        return np.flatnonzero([file in given for file in corpus.train.files.tolist()])
    if place.is_dir():
        return Run.open(place).split.labelled
    try:
        found = _array(place) if place.suffix.lower() == ".npy" else _text(place)
    except (OSError, ValueError, csv.Error) as error:
        why = "it is no text" if isinstance(error, UnicodeDecodeError) else getattr(error, "strerror", reason(error))
        raise UserError(f"labelled is {str(place)!r}, which cannot be read ({why}): {REMEDY}") from error
    if not len(found):
        raise UserError(f"{place} names no item: {REMEDY}")
    if found.min() < 0:
        raise UserError(f"{place} has item {found.min()}: positions begin with 0")
    return found


def _array(path: Path) -> Indices:
    found = np.load(path, allow_pickle=False)
    if not isinstance(found, np.ndarray) or found.ndim != 1 or found.dtype.kind not in "iu":
        raise ValueError("it holds no list of whole numbers")
    return found.astype(np.int64)


def _text(path: Path) -> Indices:
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = [row for row in csv.reader(file) if row]
    head = [name.strip().lower() for name in rows[0]] if rows else []
    if COLUMN in head:
        column = head.index(COLUMN)
        words = [row[column] if column < len(row) else "" for row in rows[1:]]
    else:
        words = [word for row in rows for cell in row for word in cell.split()]
    return np.array([_position(word) for word in words], np.int64)


def _position(word: str) -> int:
    try:
        return int(word)
    except ValueError:
        raise ValueError(f"it has {word!r} for a position") from None
