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
from normatch.data.dataset import Selected
from normatch.data.folder import folder_of
from normatch.data.images import DEFAULT
from normatch.data.sheet import ACROSS, must_be_drawable, write_sheet
from normatch.device import Device
from normatch.errors import UserError, repeat_command
from normatch.evaluate.predict import load, must_be_a_table, table
from normatch.nets.model import features
from normatch.seeding import derive, sample
from normatch.text import counted
from normatch.training.job import corpus_of
from normatch.training.run import STAYED, Moved, Run

__all__ = ["Suggestion", "Suggestions", "suggest", "suggest_to", "unlabelled_clusters"]

Indices = NDArray[np.int64]

MOST, MOST_LABELLED = 20_000, 5_000
"""Samples without and with a label that are clustered; of more, so many are drawn by the seed."""


class Suggestion(NamedTuple):
    """A sample to label, and what the run predicts for it."""

    sample: str | int
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
                files = ", ".join(Path(str(self.rows[place].sample)).name for place in places)
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
    run, predictor = Run.open(Path(path)), load(path, device)
    train, model = corpus_of(run, moved, reading).train, predictor.model
    labelled, free = run.split.labelled, np.setdiff1d(run.split.unlabelled, run.split.labelled)
    if not len(free):
        raise UserError(f"{path} has no sample without a label: add some to the data, and train again")
    known = labelled[sample(len(labelled), MOST_LABELLED, seed, "suggest")]
    places = np.concatenate([known, free[sample(len(free), MOST, seed, "suggest")]])
    # Not copied: the inputs may be a memory-mapped file that is larger than the memory.
    z = features(model, Selected.of(train.inputs).at(places))
    with torch.no_grad():
        uncertainty = 1 - model.probabilities(z).amax(1).cpu().numpy()
    x = z.cpu().numpy()
    # Similar inputs have features of similar direction.
    x /= np.linalg.norm(x, axis=1, keepdims=True).clip(min=np.finfo(x.dtype).tiny)
    chosen, clusters = unlabelled_clusters(x, labels, np.arange(len(known)), uncertainty, seed)
    samples = train.view(places[chosen])
    p = predictor.predict_proba(samples.inputs)
    names = places[chosen].tolist() if samples.files is None else samples.files.tolist()
    predicted = [predictor.classes[k] for k in p.argmax(1)]
    sums = [float(uncertainty[members].sum()) for members in clusters]
    rows = map(Suggestion, names, predicted, p.max(1).tolist(), map(len, clusters), sums)
    return Suggestions(list(rows), samples, len(free))


def unlabelled_clusters(
    x: NDArray[np.float32], count: int, labelled: Indices, weights: NDArray[np.float32], seed: int = 0
) -> tuple[Indices, list[Indices]]:
    """Up to ``count`` positions in ``x`` (N, D), one per cluster without a label, and the members of these clusters.

    k-means makes as many clusters as there are ``labelled`` positions and ``count`` together, so at least ``count`` of
    them have no label. Those of the largest total of ``weights`` are taken, in that order, each represented by the
    sample nearest to its mean. There are fewer if there are not as many different samples.
    """
    from sklearn.cluster import KMeans  # a second of import that only this needs
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    clusters = min(len(labelled) + count, len(np.unique(x, axis=0)))
    starts = (
        4 if clusters <= 200 else 1
    )  # of several random starts the best is taken; of many clusters, to save time, one
    k_means = KMeans(clusters, n_init=starts, random_state=derive(seed, "kinds") % 2**32)
    # In several threads, sums depend on their number and timing, and with them what is chosen.
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore", ConvergenceWarning)  # different samples that are equal to its rounding
        cluster = k_means.fit_predict(x)
    total = np.bincount(cluster, weights, minlength=clusters)
    unlabelled = np.setdiff1d(cluster, cluster[labelled])
    first = unlabelled[np.argsort(-total[unlabelled], kind="stable")][:count]
    found = [np.flatnonzero(cluster == one) for one in first]
    nearest = [m[np.linalg.norm(x[m] - x[m].mean(0), axis=1).argmin()] for m in found]
    return np.array(nearest, np.int64), found


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
    run, moved, count = Run.open(path), how.get("moved", STAYED), len(found.rows)
    of_files = found.samples.files is not None
    rows: list[tuple[Any, ...]] = list(found.rows)
    if of_files:
        root = folder_of(moved.applied_to(run.config).data)
        rows = [(_seen_from(out, root / str(row.sample)), "", *row[1:]) for row in found.rows]
    with table(out, [*(["path", "label"] if of_files else ["sample"]), *Suggestion._fields[1:]]) as write:
        write(rows)
        if sheet is not None:
            write_sheet(sheet, list(found.by_class()))
    said = f"{counted(count, 'sample')} to label, of {found.unlabelled:,} without one: {out or 'standard output'}"
    usable = of_files or bool((found.samples.labels != UNKNOWN).all())  # positions of which the data has the labels
    if out is None or out.suffix.lower() != ".csv" or not usable:
        return said
    total = None if of_files else len(run.split.labelled) + count
    flags = ["--labelled", str(path), str(out), "--labels", str(total)]
    flags += ["--fold", "None"] if run.config.fold is not None else []
    command = repeat_command(path, *moved.flags(), *flags, "--out", f"{path}-{total or 'more'}")
    return f"{said}\nnext: {'fill in its column label, then ' * of_files}{command}"


def _seen_from(out: Path | None, place: Path) -> str:
    """The path of a file as a manifest at ``out`` has it: relative to its folder."""
    here = os.path.realpath(out.parent if out is not None else ".")
    # Not of the file itself, which may be a link: its name is the sample's.
    return Path(os.path.relpath(os.path.join(os.path.realpath(place.parent), place.name), here)).as_posix()
