"""Label files: which samples' labels a run uses in place of a draw, and labels that are added to those of the data."""

import csv
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from normatch.data import UNKNOWN, Corpus, digest
from normatch.data.folder import folder_of
from normatch.data.manifest import is_manifest, list_manifest
from normatch.errors import UserError, reason
from normatch.training.run import Run

__all__ = ["must_be_runs_on", "read_label_files", "with_labels"]

Labels = dict[int, str | None]
"""Positions among the training samples, each with the class that it is given; None where it is that of the data."""

COLUMN = "sample"
"""The column of positions in a table of ``normatch suggest``."""

REMEDY = f"give whole numbers, one a line, or a .csv table with the column {COLUMN}, or of files with path and label"


def with_labels(corpus: Corpus, added: Mapping[int, str | None]) -> Corpus:
    """The corpus with the classes ``added`` to training samples that have none in the data."""
    labels, classes = corpus.train.labels.copy(), corpus.train.classes
    used = {at: name for at, name in added.items() if name in classes and at < len(labels) and labels[at] == UNKNOWN}
    if not used:
        return corpus
    labels[list(used)] = [classes.index(name) for name in used.values()]
    return replace(corpus, train=replace(corpus.train, labels=labels), added_labels=used)


def read_label_files(places: Sequence[Path], corpus: Corpus) -> Labels:
    """What all places name together of the training samples of ``corpus``.

    A place is the folder of an earlier run, whose labels count; a table of files and labels (a manifest), which
    corrects those of runs; or positions: a table with the column ``sample``, a text file or an .npy file.
    """
    runs: Labels = {}
    tables: Labels = {}
    for place in (place.expanduser() for place in places):
        found = runs if place.is_dir() else tables
        for at, name in _read(place, corpus).items():
            before = found.get(at)
            if name is not None and before is not None and name != before:
                remedy = "add a table with the right label" if found is runs else "correct one of the two"
                sample = at if corpus.train.files is None else corpus.train.files[at]
                raise UserError(f"{place}: {sample} is {name!r} here and {before!r} in another: {remedy}")
            found[at] = name or before
    return {at: tables.get(at) or runs.get(at) for at in sorted(runs.keys() | tables.keys())}


def must_be_runs_on(places: Sequence[Path], corpus: Corpus) -> None:
    """Raise UserError if one of the places is a run on other data, in which a position is another sample."""
    for place in (place.expanduser() for place in places):
        if place.is_dir() and Run.open(place).digest not in (None, digest(corpus)):
            raise UserError(
                f"labelled is {place}, a run on other samples than those of {corpus.name} here: give a run on the "
                "same data, with the same held-out samples"
            )


def _read(place: Path, corpus: Corpus) -> Labels:
    if is_manifest(place):
        return _manifest(place, corpus)
    if place.is_dir():
        run = Run.open(place)
        added = run.added_labels
        return {at: added.get(at) for at in run.split.labelled.tolist()}
    try:
        if place.exists() and not place.is_file():
            raise ValueError("it is no regular file")  # a pipe might never end
        found = _array(place) if place.suffix.lower() == ".npy" else _text(place)
    except (OSError, ValueError, csv.Error) as error:
        why = "it is no text" if isinstance(error, UnicodeDecodeError) else reason(error)
        raise UserError(f"labelled is {str(place)!r}, which cannot be read ({why}): {REMEDY}") from error
    if not found or min(found) < 0:
        what = f"has position {min(found)}, and positions begin with 0" if found else "names no sample"
        raise UserError(f"{place} {what}: {REMEDY}")
    return dict.fromkeys(found)


def _manifest(path: Path, corpus: Corpus) -> Labels:
    """The class of each training file of ``corpus`` that a table of files has a label for."""
    train, test, in_data = corpus.train, corpus.test, corpus.labels_of_data
    if train.files is None:
        raise UserError(
            f"labelled is {str(path)!r}, a table of files, but {corpus.name} has none: give positions, in a table "
            f"with the column {COLUMN} or one a line"
        )
    listed = list_manifest(path)
    if listed.test:
        raise UserError(f"{path} lists test images: leave them out, its labels are to be learnt")
    real = cache(os.path.realpath)

    def resolved(file: str | Path) -> str:
        """Where a file of the data is, however links to its folder are called."""
        folder, name = os.path.split(os.path.join(folder_of(corpus.name), file))
        return os.path.join(real(folder), name)

    places = {resolved(file): at for at, file in enumerate(train.files)}
    tested = set(map(resolved, test.files)) if test is not None and test.files is not None else set()
    found: Labels = {}
    for file, name in listed.train:
        if name is None:
            continue
        place = resolved(Path.cwd() / file)
        if place not in places:
            what = "a test image" if place in tested else "no image"
            raise UserError(f"{path}: {file} is {what} of {corpus.name}: leave it out")
        if name not in train.classes:
            raise UserError(
                f"{path}: {file} is {name!r}, and the classes of {corpus.name} are {', '.join(train.classes)}: "
                "correct it, or add a picture of a new class to the data"
            )
        at = places[place]
        if in_data[at] not in (UNKNOWN, train.classes.index(name)):
            other = train.classes[in_data[at]]
            raise UserError(f"{path}: {file} is {name!r}, but {other!r} in {corpus.name}: correct one of the two")
        found[at] = name
    if not found:
        raise UserError(f"{path} has no label yet: fill in its column label")
    return found


def _array(path: Path) -> list[int]:
    found = np.load(path, allow_pickle=False)
    if not isinstance(found, np.ndarray) or found.ndim != 1 or found.dtype.kind not in "iu":
        raise ValueError("it holds no list of whole numbers")
    return [int(at) for at in found]


def _text(path: Path) -> list[int]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = [row for row in csv.reader(file) if row]
    head = [name.strip().lower() for name in rows[0]] if rows else []
    if COLUMN in head:
        column = head.index(COLUMN)
        words = [row[column] if column < len(row) else "" for row in rows[1:]]
    else:
        words = [word for row in rows for cell in row for word in cell.split()]
    for word in words:
        if not word.strip().lstrip("+-").isdecimal():
            raise ValueError(f"it has {word!r} for a position")
    return list(map(int, words))
