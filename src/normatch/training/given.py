"""Labels of files that are given apart from the data, as in a table of ``normatch suggest`` that was filled in."""

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from normatch.config import Config
from normatch.data import UNKNOWN, Corpus
from normatch.data.folder import folder_of
from normatch.data.manifest import is_manifest, list_manifest
from normatch.errors import UserError
from normatch.training.run import Run

__all__ = ["given_labels", "labels_in", "with_labels"]


def with_labels(corpus: Corpus, given: Mapping[str, str]) -> Corpus:
    """The corpus with the classes ``given`` to files of its training items that have none in the data."""
    files, classes = corpus.train.files, corpus.train.classes
    if not given or files is None:
        return corpus
    labels, used = corpus.train.labels.copy(), {}
    for at, file in enumerate(files.tolist()):
        if labels[at] == UNKNOWN and given.get(file) in classes:
            labels[at], used[file] = classes.index(given[file]), given[file]
    return replace(corpus, train=replace(corpus.train, labels=labels), given=used)


def given_labels(config: Config, corpus: Corpus) -> dict[str, str]:
    """The class of each training file of ``corpus`` to which the tables in ``labelled`` give a label, or earlier runs
    there had given one. So a table corrects a run."""
    tables: dict[str, str] = {}
    runs: dict[str, str] = {}
    places = [place.expanduser() for place in config.labelled]
    for place in filter(is_manifest, places):
        for file, name in labels_in(place, corpus).items():
            _must_agree(place, file, name, tables.setdefault(file, name), "before: correct one of the two")
    files, labels = corpus.train.files, corpus.train.labels
    known = {} if files is None else dict(zip(files.tolist(), labels.tolist(), strict=True))
    for place in (place for place in places if place.is_dir()):
        for file, name in Run.open(place, config.unlabelled).given.items():
            if file in tables:
                continue
            label = known.get(file, UNKNOWN)
            in_data = name if label == UNKNOWN else corpus.train.classes[label]
            _must_agree(place, file, name, in_data, f"in {corpus.name}: correct it there, or leave {place} out")
            _must_agree(
                place, file, name, runs.setdefault(file, name), "in another run: add a table with the right one"
            )
    return runs | tables


def _must_agree(place: Path, file: str, name: str, other: str, where: str) -> None:
    if name != other:
        raise UserError(f"{place}: {file} is {name!r} here and {other!r} {where}")


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
    root = os.path.abspath(folder_of(corpus.name))
    places = _places(train.files, root)
    found: dict[str, str] = {}
    for path, name in zip(listed.train.paths, listed.train.names, strict=True):
        if name is None:
            continue
        at = next((places[place] for place in _spellings(path) if place in places), None)
        if at is None:
            test = corpus.test.files if corpus.test is not None else None
            tested = test is not None and not _places(test, root).keys().isdisjoint(_spellings(path))
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


def _places(files: NDArray[np.object_], root: str) -> dict[str, int]:
    """The position of each file by where it is, also without links to its folder."""
    found: dict[str, int] = {}
    real = cache(os.path.realpath)
    for at, name in enumerate(files.tolist()):
        folder, own = os.path.split(os.path.join(root, name))
        found[os.path.normpath(os.path.join(folder, own))] = at
        found[os.path.join(real(folder), own)] = at
    return found


def _spellings(path: Path) -> tuple[str, str]:
    """Where a file is, as given and without links to its folder."""
    return os.path.abspath(path), os.path.join(os.path.realpath(path.parent), path.name)
