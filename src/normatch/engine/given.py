"""Labels of files that are given apart from the data, as in a table of ``normatch suggest`` that was filled in."""

import csv
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from normatch.data import UNKNOWN, Corpus
from normatch.data.manifest import list_manifest
from normatch.engine.run import Run
from normatch.errors import UserError

__all__ = ["given_labels", "is_manifest", "labels_in", "with_labels"]


def with_labels(corpus: Corpus, given: Mapping[str, str]) -> Corpus:
    """The corpus with the classes ``given`` to files of its training items; those that it has not are left out."""
    files, classes = corpus.train.files, corpus.train.classes
    if not given or files is None:
        return corpus
    labels = corpus.train.labels.copy()
    for at, file in enumerate(files.tolist()):
        if given.get(file) in classes:
            labels[at] = classes.index(given[file])
    return replace(corpus, train=replace(corpus.train, labels=labels), given=dict(given))


def given_labels(places: Sequence[Path], corpus: Corpus) -> dict[str, str]:
    """The class of each training file of ``corpus`` that manifests among the places, and those that earlier runs
    among them had, give a label."""
    found: dict[str, str] = {}
    for place in (place.expanduser() for place in places):
        if not place.is_dir() and not is_manifest(place):
            continue
        given = Run.open(place).given if place.is_dir() else labels_in(place, corpus)
        for file, name in given.items():
            before = found.setdefault(file, name)
            if before != name:
                raise UserError(f"{place}: {file} is {name!r} here and {before!r} before: correct one of the two")
    return found


def is_manifest(place: Path) -> bool:
    """Whether a place is a table of files. What cannot be read is none: :mod:`normatch.engine.labelled` says why."""
    if place.suffix.lower() != ".csv":
        return False
    try:
        with place.open(encoding="utf-8-sig", newline="") as file:
            head = [name.strip().lower() for name in next(csv.reader(file), [])]
    except (OSError, ValueError, csv.Error):
        return False
    return "path" in head and "item" not in head


def labels_in(manifest: Path, corpus: Corpus) -> dict[str, str]:
    """The class of each training file of ``corpus`` that a manifest has a label for."""
    train = corpus.train
    if train.files is None:
        raise UserError(
            f"labelled is {str(manifest)!r}, a table of files, but {corpus.name} has none: give "
            "positions, in a table with the column item or one a line"
        )
    listed = list_manifest(manifest)
    if listed.test is not None:
        raise UserError(f"{manifest} lists test items: leave them out, its labels are to be learnt")
    data = Path(corpus.name).expanduser()
    places = _places(train.files, data)
    found: dict[str, str] = {}
    for path, name in zip(listed.train.paths, listed.train.names, strict=True):
        if name is None:
            continue
        at = next((places[place] for place in _spellings(path) if place in places), None)
        if at is None:
            test = corpus.test.files if corpus.test is not None else None
            tested = test is not None and not _places(test, data).keys().isdisjoint(_spellings(path))
            what = "a test item" if tested else "no item"
            raise UserError(f"{manifest}: {path} is {what} of {corpus.name}: leave it out")
        file, before = train.files[at], train.labels[at]
        if name not in train.classes:
            raise UserError(
                f"{manifest}: {path} is {name!r}, and the classes of {corpus.name} are {', '.join(train.classes)}: "
                "correct it, or add a picture of a new class to the data"
            )
        if before != UNKNOWN and train.classes[before] != name:
            raise UserError(
                f"{manifest}: {path} is {name!r}, but {train.classes[before]!r} in {corpus.name}: correct one of the "
                "two"
            )
        found[file] = name
    if not found:
        raise UserError(f"{manifest} has no label yet: fill in its column label")
    return found


def _places(files: NDArray[np.object_], data: Path) -> dict[str, int]:
    """The position of each file by where it is."""
    root = data if data.is_dir() else data.parent
    spelt = {os.path.abspath(root), os.path.realpath(root)}
    names = list(enumerate(files.tolist()))
    return {os.path.normpath(os.path.join(folder, name)): at for folder in spelt for at, name in names}


def _spellings(path: Path) -> tuple[str, str]:
    """Where a file is, as given and without links to its folder."""
    return os.path.abspath(path), os.path.join(os.path.realpath(path.parent), path.name)
