"""Which samples to label next: one per cluster without a label, the clusters of most uncertainty first."""

import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from normatch.data import UNKNOWN, Dataset, Reading
from normatch.data.dataset import Inputs, Selected
from normatch.data.folder import folder_of
from normatch.data.images import DEFAULT
from normatch.data.sheet import ACROSS, must_be_drawable, write_sheet
from normatch.device import Device
from normatch.errors import UserError, repeat_command
from normatch.evaluate.predict import load, must_be_a_table, table
from normatch.nets.model import Model, features
from normatch.seeding import derive, sample
from normatch.text import counted
from normatch.training.job import corpus_of
from normatch.training.run import STAYED, Moved, Run

__all__ = ["Suggestion", "Suggestions", "suggest", "suggest_to", "unlabelled_clusters"]

Indices = NDArray[np.int64]

MOST, MOST_LABELLED = 20_000, 5_000
"""Samples without and with a label that are clustered; of more, so many are drawn by the seed."""

STARTS, FEW = 4, 200
"""Random starts of k-means, of which the best is taken; for more than so FEW clusters only one, to save time."""


class Suggestion(NamedTuple):
    """A sample to label, and what the run predicts for it."""

    item: str | int
    """Its file, as :attr:`normatch.data.Dataset.files` has it, or else its position among the training samples."""
    predicted: str
    """The class that the run predicts."""
    probability: float
    cluster_size: int
    """How many samples are in its cluster, of those that were clustered."""
    uncertainty: float
    """How many of these are predicted wrongly, if the run's probabilities are right: the sum of 1 − probability."""


@dataclass(frozen=True)
class Suggestions:
    """Samples to label, those of the cluster of most uncertainty first."""

    rows: list[Suggestion]
    samples: Dataset
    """The same samples."""
    unlabelled: int
    """Samples without a label among which they were chosen."""

    def by_class(self) -> Iterator[tuple[str, NDArray[np.uint8]]]:
        """Rows of a contact sheet: images of one predicted class under its name and theirs."""
        for name in self.samples.classes:
            alike = [place for place, row in enumerate(self.rows) if row.predicted == name]
            for start in range(0, len(alike), ACROSS):
                places = alike[start : start + ACROSS]
                files = ", ".join(Path(str(self.rows[place].item)).name for place in places)
                yield f"{name}?  {files}", self.samples.inputs[places]


def suggest(
    path: Path | str,
    labels: int = 20,
    *,
    seed: int = 0,
    moved: Moved = STAYED,
    device: Device = "auto",
    reading: Reading = DEFAULT,
) -> Suggestions:
    """The ``labels`` samples that are most worth a label, of the data of a finished run.

    A cluster without a labelled sample may be predicted wrongly as a whole, which one label in it shows.
    """
    if labels < 1:
        raise UserError(f"labels is {labels}: give the number of samples to suggest, at least 1")
    run = Run.open(Path(path))
    model = load(path, device)
    corpus = corpus_of(run, moved, reading)
    labelled, free = run.split.labelled, np.setdiff1d(run.split.unlabelled, run.split.labelled)
    if not len(free):
        raise UserError(f"{path} has no sample without a label: add some to the data, and train again")
    chosen, sizes, uncertainties = _choose(model.model, corpus.train.inputs, labelled, free, labels, seed)
    samples = corpus.train.view(chosen)
    p = model.predict_proba(samples.inputs)
    names = chosen.tolist() if samples.files is None else samples.files.tolist()
    predicted = [model.classes[k] for k in p.argmax(1)]
    rows = map(Suggestion, names, predicted, p.max(1).tolist(), sizes, uncertainties)
    return Suggestions(list(rows), samples, len(free))


def _choose(
    model: Model, inputs: Inputs, labelled: Indices, free: Indices, count: int, seed: int
) -> tuple[Indices, list[int], list[float]]:
    """Of the ``free`` positions in ``inputs``, one per cluster without a ``labelled`` one, by summed uncertainty; the
    size and the uncertainty of each cluster. Clusters are of features of similar direction."""
    labelled = labelled[sample(len(labelled), MOST_LABELLED, seed, "suggest")]
    free = free[sample(len(free), MOST, seed, "suggest")]
    places = np.concatenate([labelled, free])
    # Not copied: the inputs may be a memory-mapped file that is larger than the memory.
    z = features(model, Selected.of(inputs).at(places))
    with torch.no_grad():
        uncertainty = 1 - model.probabilities(z).amax(1).cpu().numpy()
    x = z.cpu().numpy()
    directions = x / np.linalg.norm(x, axis=1, keepdims=True).clip(min=np.finfo(x.dtype).tiny)
    chosen, clusters = unlabelled_clusters(directions, count, np.arange(len(labelled)), weights=uncertainty, seed=seed)
    return places[chosen], [len(members) for members in clusters], [float(uncertainty[m].sum()) for m in clusters]


def unlabelled_clusters(
    x: NDArray[np.float32],
    count: int,
    labelled: Indices | None = None,
    *,
    weights: NDArray[np.float32] | None = None,
    seed: int = 0,
) -> tuple[Indices, list[Indices]]:
    """Up to ``count`` positions in ``x`` (N, D), one per cluster without a label, and the members of these clusters.

    k-means makes as many clusters as there are ``labelled`` positions and ``count`` together, so at least ``count`` of
    them have no label. Those of the largest total of ``weights`` are taken (by default, the largest), in that order,
    each represented by the sample nearest to its mean. There are fewer if there are not as many different samples.
    """
    from sklearn.cluster import KMeans  # a second of import that only this needs
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    labelled = np.zeros(0, np.int64) if labelled is None else labelled
    clusters = min(len(labelled) + count, len(np.unique(x, axis=0)))
    starts = STARTS if clusters <= FEW else 1
    k_means = KMeans(clusters, n_init=starts, random_state=derive(seed, "kinds") % 2**32)
    # In several threads, sums depend on their number and timing, and with them what is chosen.
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore", ConvergenceWarning)  # different samples that are equal to its rounding
        cluster = k_means.fit_predict(x)
    total = np.bincount(cluster, weights, minlength=clusters)
    unlabelled = np.setdiff1d(cluster, cluster[labelled])
    first = unlabelled[np.argsort(-total[unlabelled], kind="stable")][:count]
    found = [np.flatnonzero(cluster == one) for one in first]
    return np.array([_nearest_to_mean(x, members) for members in found], np.int64), found


def _nearest_to_mean(x: NDArray[np.float32], members: Indices) -> int:
    distances = np.linalg.norm(x[members] - x[members].mean(0), axis=1)
    return int(members[distances.argmin()])


def suggest_to(
    path: Path, labels: int, out: Path | None, sheet: Path | None, *, force: bool = False, **how: Any
) -> str:
    """Suggest into a table ``out`` (standard output by default) and a contact sheet; return a summary for the user.

    ``how`` is as for :func:`suggest`. Of files, the table is a manifest whose labels are to be filled in, and then
    used with ``labelled``.
    """
    if out is not None:
        must_be_a_table(out, force=force)
    if sheet is not None:
        must_be_drawable(sheet, force=force)
    found = suggest(path, labels, **how)
    if sheet is not None and not found.samples.is_images:
        raise UserError(f"sheet is {str(sheet)!r}, but {path} is a run on feature vectors: leave it out")
    run, of_files = Run.open(path), found.samples.files is not None
    moved: Moved = how.get("moved", STAYED)
    config = moved.applied_to(run.config)
    with table(out, [*(["path", "label"] if of_files else ["item"]), *Suggestion._fields[1:]]) as write:
        if of_files:
            places = (_seen_from(out, folder_of(config.data) / str(row.item)) for row in found.rows)
            write([(place, "", *row[1:]) for place, row in zip(places, found.rows, strict=True)])
        else:
            write(found.rows)
        if sheet is not None:
            write_sheet(sheet, list(found.by_class()))
    to_label = counted(len(found.rows), "sample")
    said = f"{to_label} to label, of {found.unlabelled:,} without one: {out or 'standard output'}"
    if out is None or out.suffix.lower() != ".csv":
        return said
    if of_files:
        return f"{said}\nnext: fill in its column label, then {_command_with(out, None, run, moved)}"
    if (found.samples.labels != UNKNOWN).all():
        labels = len(run.split.labelled) + len(found.rows)
        return f"{said}\nnext: {_command_with(out, labels, run, moved)}"
    return said


def _seen_from(out: Path | None, place: Path) -> str:
    """The path of a file as a manifest at ``out`` has it: relative to its folder."""
    here = os.path.realpath(out.parent if out is not None else ".")
    # Not of the file itself, which may be a link: its name is the sample's.
    return Path(os.path.relpath(os.path.join(os.path.realpath(place.parent), place.name), here)).as_posix()


def _command_with(out: Path, labels: int | None, run: Run, moved: Moved) -> str:
    """The command line of the same run with the labels of the table as well."""
    flags = ["--labelled", str(run.path), str(out), "--labels", str(labels)]
    if run.config.fold is not None:
        flags += ["--fold", "None"]
    return repeat_command(run.path, *moved.flags(), *flags, "--out", f"{run.path}-{labels or 'more'}")
