"""Which items to label next: one of each kind that has no label yet, those kinds first of which a run is least sure."""

import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from normatch.command import command_of, flags_of_own
from normatch.config import Config
from normatch.data import UNKNOWN, Dataset, Reading
from normatch.data.folder import folder_of
from normatch.data.images.sheet import ACROSS, must_be_drawable, write_sheet
from normatch.data.reading import DEFAULT
from normatch.device import Device
from normatch.errors import UserError
from normatch.evaluate.answers import must_be_the_same, read_answers
from normatch.evaluate.predictor import load
from normatch.evaluate.table import must_be_a_table, written
from normatch.text import counted
from normatch.training.job import open_corpus, with_test_set
from normatch.training.kinds import of_new_kinds
from normatch.training.run import STAYED, Moved, Run

__all__ = ["Suggestion", "Suggestions", "suggest", "suggest_to"]


class Suggestion(NamedTuple):
    """An item to label, and what the run makes of it."""

    item: str | int
    """Its file, as :attr:`normatch.data.Dataset.files` has it, or else its position among the training items."""
    guess: str
    """The class that the run takes it for."""
    probability: float
    stands_for: int
    """How many items are of its kind, of those that were looked at."""
    in_doubt: float
    """How many of these have a wrong guess, if the run's probabilities are right: the sum of 1 − probability."""


@dataclass(frozen=True)
class Suggestions:
    """Items to label, those first whose kind is most in doubt."""

    rows: list[Suggestion]
    items: Dataset
    """The same items."""
    unlabelled: int
    """Items without a label among which they were chosen."""

    def by_guess(self) -> Iterator[tuple[str, NDArray[np.uint8]]]:
        """Rows of a contact sheet: pictures of one guess under its name and theirs."""
        for name in self.items.classes:
            alike = [place for place, row in enumerate(self.rows) if row.guess == name]
            for start in range(0, len(alike), ACROSS):
                places = alike[start : start + ACROSS]
                named = ", ".join(Path(str(self.rows[place].item)).name for place in places)
                yield f"{name}?  {named}", self.items.inputs[places]


def suggest(
    path: Path | str,
    labels: int = 20,
    *,
    seed: int = 0,
    moved: Moved = STAYED,
    device: Device = "auto",
    reading: Reading = DEFAULT,
) -> Suggestions:
    """The ``labels`` items that are worth a label most, of the data of a finished run.

    A kind without a labelled item may have the wrong name as a whole, which one label of it shows.
    """
    if labels < 1:
        raise UserError(f"labels is {labels}: give the number of items to suggest, at least 1")
    run = Run.open(Path(path), moved.unlabelled)
    config = moved.applied_to(run.config.replace(device=device))
    model = load(path, device)
    corpus = with_test_set(config, open_corpus(config, reading), run.given)
    must_be_the_same(run, corpus, model.model.spec, read_answers(run, model.classes))
    labelled, free = run.split.labelled, np.setdiff1d(run.split.unlabelled, run.split.labelled)
    if not len(free):
        raise UserError(f"{path} has no item without a label: add some to the data, and train again")
    chosen, sizes, doubts = of_new_kinds(model.model, corpus.train.inputs, labelled, free, labels, seed)
    items = corpus.train.subset(chosen)
    p = model.predict_proba(items.inputs)
    names = chosen.tolist() if items.files is None else items.files.tolist()
    guesses = [model.classes[k] for k in p.argmax(1)]
    rows = map(Suggestion, names, guesses, p.max(1).tolist(), sizes, doubts)
    return Suggestions(list(rows), items, len(free))


def suggest_to(
    path: Path, labels: int, out: Path | None, sheet: Path | None, *, force: bool = False, **how: Any
) -> str:
    """Suggest into a table ``out`` (standard output by default) and a contact sheet; return a summary for the user.

    ``how`` is as for :func:`suggest`. Of files, the table is a manifest whose labels are to be filled in, and then
    used with ``labelled``.
    """
    if out is not None:
        must_be_a_table(out, force)
    if sheet is not None:
        must_be_drawable(sheet, force=force)
    found = suggest(path, labels, **how)
    if sheet is not None and not found.items.is_images:
        raise UserError(f"sheet is {str(sheet)!r}, but {path} is a run on feature vectors: leave it out")
    run, of_files = Run.open(path), found.items.files is not None
    config = how.get("moved", STAYED).applied_to(run.config)
    with written(out, [*(["path", "label"] if of_files else ["item"]), *Suggestion._fields[1:]]) as write:
        if of_files:
            places = (_seen_from(out, folder_of(config.data) / str(row.item)) for row in found.rows)
            write([(place, "", *row[1:]) for place, row in zip(places, found.rows, strict=True)])
        else:
            write(found.rows)
        if sheet is not None:
            write_sheet(sheet, list(found.by_guess()))
    said = (
        f"{counted(len(found.rows), 'item')} to label, of {found.unlabelled:,} without one: {out or 'standard output'}"
    )
    if out is None or out.suffix.lower() != ".csv":
        return said
    if of_files:
        return f"{said}\nnext: fill in its column label, then {_command_with_labels(path, out, config)}"
    if (found.items.labels != UNKNOWN).all():
        return f"{said}\nnext: {_command_with_more(run, out, len(found.rows), config)}"
    return said


def _seen_from(table: Path | None, place: Path) -> str:
    """The path of a file as a manifest in the table's place has it: relative to its folder."""
    here = os.path.realpath(table.parent if table is not None else ".")
    # Not of the file itself, which may be a link: its name is the item's.
    return Path(os.path.relpath(os.path.join(os.path.realpath(place.parent), place.name), here)).as_posix()


def _command_with_more(run: Run, table: Path, count: int, config: Config) -> str:
    """The command line of the same run with these labels as well."""
    labels = len(run.split.labelled) + count
    more = config.replace(labelled=(run.path, table), labels=labels, fold=None)
    return f"{command_of(more)} --out {shlex.quote(f'{run.path}-{labels}')}"


def _command_with_labels(path: Path, table: Path, config: Config) -> str:
    """The command line of a run like it on the user's own files with these labels as well."""
    more = config.replace(labelled=(path, table), labels=None, fold=None)
    return shlex.join(["normatch", "train", *flags_of_own(more), "--out", f"{path}-more"])
