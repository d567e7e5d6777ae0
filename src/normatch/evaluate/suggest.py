"""Which samples to label first or next: one per cluster without a label, the largest clusters first or, by a run, those
of most uncertainty."""

import dataclasses
import math
import os
import shlex
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from normatch.augment import AugmentConfig
from normatch.autoconfig import side_to_embed
from normatch.config import Config
from normatch.data import UNKNOWN, Corpus, Dataset, Reading, load_corpus
from normatch.data.dataset import Selected
from normatch.data.folder import Listings, find_images, folder_of, has_classes
from normatch.data.images import DEFAULT
from normatch.data.load import find_listings
from normatch.data.sheet import ACROSS, must_be_drawable, write_sheet
from normatch.device import Device, device_of
from normatch.errors import UserError, repeat_command
from normatch.evaluate.predict import load, must_be_a_table, table
from normatch.nets import PRETRAINED, find_backbone
from normatch.nets.efficientnet_lite import installed_weights
from normatch.nets.frozen import FROZEN
from normatch.nets.model import Model, ModelSpec, features
from normatch.seeding import derive, sample
from normatch.text import counted
from normatch.training.bank import features_of
from normatch.training.job import corpus_of
from normatch.training.progress import Progress, quiet
from normatch.training.run import STAYED, Moved, Run
from normatch.training.runtime import Runtime

__all__ = [
    "Suggestion",
    "Suggestions",
    "suggest",
    "suggest_first",
    "suggest_first_to",
    "suggest_to",
    "unlabelled_clusters",
]

Indices = NDArray[np.int64]

MOST, MOST_LABELLED = 20_000, 5_000
"""Samples without and with a label that are clustered; of more, so many are drawn by the seed."""


class Suggestion(NamedTuple):
    """A sample to label, and what the run predicts for it; None before there is a run."""

    sample: str | int
    """Its file, as :attr:`normatch.data.Dataset.files` has it, or else its position among the training samples."""
    predicted: str | None
    """The class that the run predicts."""
    probability: float | None
    cluster_size: int
    """How many samples are in its cluster, of those that were clustered."""
    uncertainty: float | None
    """How many of these are predicted wrongly, if the run's probabilities are right: the sum of 1 − probability."""


@dataclass(frozen=True)
class Suggestions:
    """Samples to label, those of the largest cluster, or of that of most uncertainty, first."""

    rows: list[Suggestion]
    samples: Dataset
    """The same samples."""
    unlabelled: int
    """Samples without a label among which they were chosen."""
    by: str = ""
    """What was clustered, before there is a run."""

    @property
    def fields(self) -> list[str]:
        """The fields of the rows that are not None."""
        return [name for name, value in zip(Suggestion._fields, self.rows[0], strict=True) if value is not None]

    def by_class(self) -> Iterator[tuple[str, NDArray[np.uint8]]]:
        """Rows of a contact sheet: images of one predicted class under its name and theirs."""
        for name in dict.fromkeys([*self.samples.classes, None]):
            alike = [place for place, row in enumerate(self.rows) if row.predicted == name]
            for start in range(0, len(alike), ACROSS):
                places = alike[start : start + ACROSS]
                files = ", ".join(Path(str(self.rows[place].sample)).name for place in places)
                yield f"{name}?  {files}" if name else files, self.samples.inputs[places]


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
    _must_be_some(labels)
    run, predictor = Run.open(Path(path)), load(path, device)
    train, model = corpus_of(run, moved, reading).train, predictor.model
    labelled, free = run.split.labelled, run.split.others
    if not len(free):
        raise UserError(f"{path} has no sample without a label: add some to the data, and train again")
    places, known = _looked_at(labelled, free, seed)
    # Not copied: the inputs may be a memory-mapped file that is larger than the memory.
    z = features(model, Selected.of(train.inputs).at(places))
    with torch.no_grad():
        uncertainty = 1 - model.probabilities(z).amax(1).cpu().numpy()
    chosen, clusters = unlabelled_clusters(_directions(z.cpu().numpy()), labels, known, uncertainty, seed)
    samples = train.view(places[chosen])
    p = predictor.predict_proba(samples.inputs)
    predicted = [predictor.classes[k] for k in p.argmax(1)]
    sums = [float(uncertainty[members].sum()) for members in clusters]
    rows = map(Suggestion, _names(samples, places[chosen]), predicted, p.max(1).tolist(), map(len, clusters), sums)
    return Suggestions(list(rows), samples, len(free))


def suggest_first(
    data: Path | str,
    labels: int = 20,
    *,
    unlabelled: Path | None = None,
    seed: int = 0,
    device: Device = "auto",
    reading: Reading = DEFAULT,
    progress: Progress = quiet,
) -> Suggestions:
    """The ``labels`` samples to label first, of data of which few have a label or none.

    Images are clustered by the features of the usual pretrained network or, if its weights are not installed, by
    histograms of oriented gradients; feature vectors as they are.
    """
    _must_be_some(labels)
    backbone = PRETRAINED if installed_weights() else "hog"
    corpus = _corpus(str(data), unlabelled, backbone, device, reading)
    train = corpus.train
    labelled, free = (np.flatnonzero(known) for known in (train.labels != UNKNOWN, train.labels == UNKNOWN))
    if not len(free):
        raise UserError(f"{data} has no sample without a label: there is nothing to suggest")
    places, known = _looked_at(labelled, free, seed)
    looked_at = train.view(places)
    x = _plain(looked_at, backbone, device, reading, progress) if train.is_images else np.asarray(looked_at.inputs)
    x = (x - x.mean(0)) / np.where(x.std(0) > 0, x.std(0), 1)
    chosen, clusters = unlabelled_clusters(_directions(x), labels, known, np.ones(len(x), np.float32), seed)
    samples = train.view(places[chosen])
    rows = [
        Suggestion(name, None, None, len(members), None)
        for name, members in zip(_names(samples, places[chosen]), clusters, strict=True)
    ]
    by = f"features of {backbone}" if train.is_images and backbone == PRETRAINED else ""
    return Suggestions(rows, samples, len(free), by or ("gradients (HOG)" if train.is_images else "the vectors"))


def _corpus(data: str, unlabelled: Path | None, backbone: str, device: Device, reading: Reading) -> Corpus:
    """The samples, images at the side at which they are embedded. A folder without class folders has no labels, and its
    pictures may lie anywhere in it."""
    where = Path(data).expanduser()
    plain = where.is_dir() and not has_classes(where)
    files = [(path, None) for path in find_images([where])] if plain else []
    listings = Listings(data, where, [*files], []) if plain else find_listings(data, "stop", unlabelled)
    kind = device_of(device).type
    if listings is None:
        corpus = load_corpus(data, unlabelled=unlabelled)
        if not corpus.train.is_images:
            return corpus
        return load_corpus(data, unlabelled=unlabelled, image_size=side_to_embed(backbone, len(corpus.train), kind))
    if plain and unlabelled is not None:
        listings = listings.with_unlabelled(unlabelled)
    listings = dataclasses.replace(listings, test=[])
    return listings.read(image_size=side_to_embed(backbone, len(listings.train), kind), reading=reading)


def _must_be_some(labels: int) -> None:
    if labels < 1:
        raise UserError(f"labels is {labels}: give the number of samples to suggest, at least 1")


def _looked_at(labelled: Indices, free: Indices, seed: int) -> tuple[Indices, Indices]:
    """The samples that are clustered, and which positions of them have a label."""
    known = labelled[sample(len(labelled), MOST_LABELLED, seed, "suggest")]
    return np.concatenate([known, free[sample(len(free), MOST, seed, "suggest")]]), np.arange(len(known))


def _names(samples: Dataset, places: Indices) -> list[str | int]:
    names: list[str | int] = places.tolist() if samples.files is None else samples.files.tolist()
    return names


def _directions(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Of length 1: similar inputs have features of similar direction."""
    found: NDArray[np.float32] = x / np.linalg.norm(x, axis=1, keepdims=True).clip(min=np.finfo(x.dtype).tiny)
    return found


def _plain(images: Dataset, backbone: str, device: Device, reading: Reading, progress: Progress) -> NDArray[np.float32]:
    """Features (N, D) of images by a network that nobody has trained on them; they are cached."""
    statistics = find_backbone(backbone).statistics
    mean, std = statistics(images.shape) if statistics else ((0.0,) * images.shape[0], (255.0,) * images.shape[0])
    runtime = Runtime.of(Config(device=device)).with_threads(math.inf)
    with torch.random.fork_rng([]):
        model = Model(ModelSpec(f"{FROZEN}:{backbone}", images.shape, ("",), mean, std))
    model.backbone.load_pretrained()
    done = 0

    def count(n: int) -> None:
        nonlocal done
        done += n
        progress.count("embedding images", done, len(images))

    model = model.eval().to(runtime.device)
    return features_of(model, images, AugmentConfig(), 0, 0, runtime, reading, count)[:, 0]


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
    """Suggest by a run into a table ``out`` (standard output by default) and a contact sheet; return a summary for the
    user.

    ``how`` is as for :func:`suggest`. Of files, the table is a manifest whose labels are to be filled in, and then
    used with ``labelled``.
    """
    _must_be_places(out, sheet, force=force)
    found, run, moved = suggest(path, labels, **how), Run.open(path), how.get("moved", STAYED)
    said = _write(found, folder_of(moved.applied_to(run.config).data), out, sheet, f"{path} is a run on")
    of_files = found.samples.files is not None
    usable = of_files or bool((found.samples.labels != UNKNOWN).all())  # positions of which the data has the labels
    if out is None or out.suffix.lower() != ".csv" or not usable:
        return said
    total = None if of_files else len(run.split.labelled) + len(found.rows)
    flags = ["--labelled", str(path), str(out), "--labels", str(total)]
    flags += ["--fold", "None"] if run.config.fold is not None else []
    command = repeat_command(path, *moved.flags(), *flags, "--out", f"{path}-{total or 'more'}")
    return f"{said}\nnext: {'fill in its column label, then ' * of_files}{command}"


def suggest_first_to(
    data: Path, labels: int, out: Path | None, sheet: Path | None, *, force: bool = False, **how: Any
) -> str:
    """The same before there is a run; ``how`` is as for :func:`suggest_first`."""
    _must_be_places(out, sheet, force=force)
    found, unlabelled = suggest_first(data, labels, **how), how.get("unlabelled")
    said = f"{_write(found, folder_of(str(data)), out, sheet, f'{data} has')}, by {found.by}"
    if out is None or out.suffix.lower() != ".csv" or found.samples.files is None:
        return said
    more = ["--unlabelled", str(unlabelled)] if unlabelled is not None else []
    command = shlex.join(["normatch", "train", "--data", str(data), *more, "--labelled", str(out)])
    return f"{said}\nnext: fill in its column label, then {command}"


def _must_be_places(out: Path | None, sheet: Path | None, *, force: bool) -> None:
    if out is not None:
        must_be_a_table(out, force=force)
    if sheet is not None:
        must_be_drawable(sheet, force=force)


def _write(found: Suggestions, root: Path, out: Path | None, sheet: Path | None, of: str) -> str:
    """Write the table and the sheet; return what they are."""
    if sheet is not None and not found.samples.is_images:
        raise UserError(f"sheet is {str(sheet)!r}, but {of} feature vectors: leave it out")
    of_files, fields = found.samples.files is not None, found.fields
    rows: list[list[Any]] = [[getattr(row, name) for name in fields] for row in found.rows]
    if of_files:
        rows = [[_seen_from(out, root / str(name)), "", *rest] for name, *rest in rows]
    with table(out, [*(["path", "label"] if of_files else ["sample"]), *fields[1:]]) as write:
        write(rows)
        if sheet is not None:
            write_sheet(sheet, list(found.by_class()))
    count = counted(len(rows), "sample")
    return f"{count} to label, of {found.unlabelled:,} without one: {out or 'standard output'}"


def _seen_from(out: Path | None, place: Path) -> str:
    """The path of a file as a manifest at ``out`` has it: relative to its folder."""
    here = os.path.realpath(out.parent if out is not None else ".")
    # Not of the file itself, which may be a link: its name is the sample's.
    return Path(os.path.relpath(os.path.join(os.path.realpath(place.parent), place.name), here)).as_posix()
