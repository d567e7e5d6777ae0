"""Which items to label next: one of each kind that has no label yet, or those of which a finished run is least sure."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from normatch.columns import counted
from normatch.data import Dataset, Reading
from normatch.data.reading import DEFAULT
from normatch.device import Device
from normatch.engine.job import open_corpus, with_test_set
from normatch.engine.run import STAYED, Moved, Run
from normatch.errors import UserError
from normatch.evaluate.answers import must_be_the_same, read_answers
from normatch.evaluate.kinds import one_of_each_kind
from normatch.evaluate.predictor import BATCH, Predictor, load
from normatch.evaluate.table import must_be_a_table, written
from normatch.images.sheet import ACROSS, must_be_drawable, write_sheet
from normatch.seeding import permutation

__all__ = ["By", "Suggestion", "Suggestions", "in_doubt", "of_new_kinds", "suggest", "suggest_to"]

By = Literal["kinds", "doubt"]
"""How to choose: one item of each kind without a label, or the items that the run is least sure of."""

Indices = NDArray[np.int64]

MOST, MOST_LABELLED = 20_000, 5_000
"""Items without and with a label that are looked at; of more, so many are drawn by the seed."""


class Suggestion(NamedTuple):
    """An item to label, and what the run makes of it."""

    item: str | int
    """Its file, or else its position among the training items."""
    guess: str
    """The class that the run takes it for."""
    probability: float
    stands_for: int
    """How many items are of its kind, of those that were looked at; 1 if chosen by doubt."""


@dataclass(frozen=True)
class Suggestions:
    """Items to label, those first that stand for most others, or that are in doubt most."""

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
    by: By = "kinds",
    seed: int = 0,
    moved: Moved = STAYED,
    device: Device = "auto",
    reading: Reading = DEFAULT,
) -> Suggestions:
    """The ``labels`` items that are worth a label most, of the data of a finished run.

    A kind without a labelled item may have the wrong name as a whole, which one label of it shows. Doubt is worth more
    once each kind has a label (docs/results.md, Which digits to label).
    """
    if labels < 1:
        raise UserError(f"labels is {labels}: give the number of items to suggest, at least 1")
    run = Run.open(Path(path))
    config = moved.applied_to(run.config.replace(device=device))
    model = load(path, device)
    corpus = with_test_set(config, open_corpus(config, reading))
    must_be_the_same(run, corpus, model.model.spec, read_answers(run, model.classes))
    labelled, free = run.split.labelled, np.setdiff1d(run.split.unlabelled, run.split.labelled)
    if not len(free):
        raise UserError(f"{path} has no item without a label: add some to the data, and train again")
    if by == "kinds":
        chosen, sizes = of_new_kinds(model, corpus.train.inputs, labelled, free, labels, seed)
    else:
        chosen = in_doubt(model, corpus.train.inputs, free, labels, seed)
        sizes = np.ones(len(chosen), np.int64)
    items = corpus.train.subset(chosen)
    p = model.predict_proba(items.inputs)
    names = chosen.tolist() if items.files is None else items.files.tolist()
    guesses = [model.classes[k] for k in p.argmax(1)]
    rows = map(Suggestion, names, guesses, p.max(1).tolist(), sizes.tolist())
    return Suggestions(list(rows), items, len(free))


def of_new_kinds(
    model: Predictor, inputs: NDArray[Any], labelled: Indices, free: Indices, count: int, seed: int
) -> tuple[Indices, Indices]:
    """One of each kind among the ``free`` positions in ``inputs``, of kinds that have no ``labelled`` one, and how many
    are of its kind. What has features of a similar direction is of one kind."""
    labelled, free = _some(labelled, MOST_LABELLED, seed), _some(free, MOST, seed)
    places = np.concatenate([labelled, free])
    z = np.concatenate([model.features(inputs[part]) for part in _batches(places)])
    directions = z / np.linalg.norm(z, axis=1, keepdims=True).clip(min=np.finfo(z.dtype).tiny)
    chosen, sizes = one_of_each_kind(directions, count, np.arange(len(labelled)), seed=seed)
    return places[chosen], sizes


def in_doubt(model: Predictor, inputs: NDArray[Any], free: Indices, count: int, seed: int) -> Indices:
    """Those of the ``free`` positions in ``inputs`` of which head and auxiliary classifier disagree, the head's least
    confident ones first; then the others, in the same order."""
    free = _some(free, MOST, seed)
    rows = [row for part in _batches(free) for row in model.label(inputs[part])]
    order = sorted(range(len(rows)), key=lambda place: (bool(rows[place].agree), rows[place].probability))
    return free[order[:count]]


def _some(positions: Indices, most: int, seed: int) -> Indices:
    return positions[np.sort(permutation(len(positions), seed, "suggest")[:most])]


def _batches(places: Indices) -> list[Indices]:
    """In parts: the inputs may be a memory-mapped file that is larger than the memory."""
    return [places[start : start + BATCH] for start in range(0, len(places), BATCH)]


def suggest_to(
    path: Path, labels: int, out: Path | None, sheet: Path | None, *, force: bool = False, **how: Any
) -> str:
    """Suggest into a table ``out`` (standard output by default) and a contact sheet; return a summary for the user.

    ``how`` is as for :func:`suggest`. Of files, the table is a manifest whose labels are to be filled in.
    """
    if out is not None:
        must_be_a_table(out, force)
    if sheet is not None:
        must_be_drawable(sheet, force=force)
    found = suggest(path, labels, **how)
    if sheet is not None:
        if not found.items.is_images:
            raise UserError(f"sheet is {str(sheet)!r}, but {path} is a run on feature vectors: leave it out")
        write_sheet(sheet, list(found.by_guess()))
    of_files = found.items.files is not None
    with written(out, [*(["path", "label"] if of_files else ["item"]), *Suggestion._fields[1:]]) as write:
        write([(row.item, *([""] if of_files else []), *row[1:]) for row in found.rows])
    return (
        f"{counted(len(found.rows), 'item')} to label, of {found.unlabelled:,} without one: {out or 'standard output'}"
    )
