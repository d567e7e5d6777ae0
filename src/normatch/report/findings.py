"""The numbers of a report, JSON-ready: the page shows them and ``--json`` prints them.

They are made from the files of a finished run and, if its data can be read again, from new predictions.
"""

import math
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from normatch import metrics
from normatch.config import Config, to_json
from normatch.data import UNKNOWN, Corpus, Dataset, HostPool, Reading, sources
from normatch.data.cache import CacheError
from normatch.data.images import DEFAULT
from normatch.device import Device, device_of
from normatch.errors import UserError, repeat_command
from normatch.evaluate.held_out import held_out, read_held_out
from normatch.methods import methods
from normatch.nets.model import Model, features, load_model
from normatch.seeding import sample
from normatch.significance import wilson_interval
from normatch.training.job import corpus_of
from normatch.training.predictions import HeldOutPredictions
from normatch.training.run import STAYED, Moved, Run

__all__ = ["Evidence", "Findings", "Predicted", "Shown", "curves_of", "examine", "gather", "next_steps"]

T = TypeVar("T")

Curve = list[tuple[int, float | None]]
"""(step, value) pairs; the value is None where nothing was counted."""

MOST_POINTS = 300
"""Most points of a curve: more cannot be seen, and would make the page of a long run large."""
MOST_UNLABELLED = 5000
"""Most unlabelled samples to predict again: enough for the shares of classes, and fast without a GPU."""
MOST_SHOWN = 12
"""Most samples shown of those in dispute, and of errors."""
MOST_LATENTS = 800
"""Most samples whose latents are drawn."""


@dataclass(frozen=True)
class Predicted:
    """Samples of the data, and the predictions of head and auxiliary classifier for them."""

    which: Literal["test", "validation", "unlabelled"]
    samples: NDArray[np.int64]
    dataset: Dataset
    logits: NDArray[np.float64]
    """(N, K) of the head that predicts."""
    auxiliary: NDArray[np.float64] | None
    """(N, K) probabilities of the first auxiliary classifier."""
    latents: NDArray[np.float64] | None
    """(N, D) g = f(z) of the flow."""

    @property
    def p(self) -> NDArray[np.float64]:
        """(N, K) probabilities of the head."""
        return metrics.soften(self.logits, 1.0)


@dataclass(frozen=True)
class Evidence:
    """Everything that findings are made from."""

    run: Run
    config: Config
    model: Model
    scored: HeldOutPredictions | None
    held_out: Predicted | None = None
    validation: Predicted | None = None
    """Validation samples, if there is a test set too."""
    unlabelled: Predicted | None = None
    gone: str | None = None
    """Why the data could not be read again; None if it could."""

    @property
    def shown(self) -> Predicted | None:
        """The samples to show: the held-out ones or, if there are none, unlabelled ones."""
        return self.held_out or self.unlabelled

    @property
    def noun(self) -> str:
        return "images" if len(self.model.spec.shape) == 3 else "samples"

    def gone_or(self, otherwise: str) -> str:
        """The reason why something is missing: that the data could not be read, or else ``otherwise``."""
        return f"The data could not be read again: {self.gone}." if self.gone else otherwise

    def described(self, predicted: Predicted) -> str:
        return f"{'unlabelled training' if predicted.which == 'unlabelled' else predicted.which} {self.noun}"


def gather(path: Path, moved: Moved = STAYED, device: Device = "auto", reading: Reading = DEFAULT) -> Evidence:
    """Read a finished run and, in the same way as for training, its data.

    Missing or changed data is no error, unless ``moved`` says where it is: all that needs no data is still there.
    """
    run = Run.open(path)
    config, _ = run.config, (run.result, run.split, run.warnings)  # if these are damaged, that is an error
    model = load_model(path).to(device_of(device))
    scored = read_held_out(run, model.spec.classes)
    try:
        corpus = corpus_of(run, moved, reading)
        held, validation, unlabelled = _predict_all(run, corpus, model)
    except (UserError, OSError) as error:
        if moved != STAYED or isinstance(error, CacheError):
            raise
        return Evidence(run, config, model, scored, gone=str(error))
    if scored is None and held is not None and held.which != "unlabelled":
        # Only then: stored predictions take precedence, because another device may round differently.
        scored = HeldOutPredictions(held.which, held.samples, held.dataset.labels, held.p.argmax(1), held.p.max(1))
    return Evidence(run, config, model, scored, held, validation, unlabelled)


def _predict_all(run: Run, corpus: Corpus, model: Model) -> tuple[Predicted | None, Predicted | None, Predicted | None]:
    """Predictions for held-out samples, for validation if there is a test set too, and for unlabelled samples."""
    train, split = corpus.train, run.split
    held = validation = unlabelled = None
    if run.result["n"]:
        which, at, dataset = held_out(run, corpus)
        held = _predict(model, which, at, dataset)
        if which == "test" and len(split.validation):
            validation = _predict(model, "validation", split.validation, train.view(split.validation))
    if len(split.unlabelled):
        at = split.unlabelled[sample(len(split.unlabelled), MOST_UNLABELLED, run.config.seed, "report")]
        unlabelled = _predict(model, "unlabelled", at, train.view(at))
    return held, validation, unlabelled


@torch.no_grad()
def _predict(
    model: Model, which: Literal["test", "validation", "unlabelled"], samples: NDArray[np.int64], dataset: Dataset
) -> Predicted:
    z = features(model, HostPool(dataset).inputs)  # on a GPU, all of them might not fit
    auxiliary = _array(model.auxiliary[0](z).float().softmax(1)) if len(model.auxiliary) else None
    latents = _array(model.flow.transform(z)[0]) if model.flow is not None else None
    return Predicted(which, samples, dataset, _array(model.head(z)), auxiliary, latents)


def _array(tensor: torch.Tensor) -> NDArray[np.float64]:
    return tensor.detach().double().cpu().numpy()


@dataclass(frozen=True)
class Calibration:
    """Confidence against accuracy, before and after temperature scaling."""

    before: tuple[metrics.Bin, ...]
    error_before: float
    after: tuple[metrics.Bin, ...] | None
    error_after: float | None
    temperatures: tuple[float, ...]
    how: str
    """A sentence on the samples on which the temperature was fitted, or on why none was."""


@dataclass(frozen=True)
class Balance:
    """How often each class is a pseudo-label, and how often it is the true class, where known."""

    n: int
    of: int
    """Number of all unlabelled samples, of which ``n`` were predicted again."""
    known: int
    pseudo: list[int]
    truth: list[int]


@dataclass(frozen=True)
class Agreement:
    """Head and auxiliary classifier on the same samples; accuracies are None if no class is known."""

    of: str
    n: int
    agree: int
    accuracy_agree: float | None
    accuracy_disagree: float | None
    accuracy_auxiliary: float | None


@dataclass(frozen=True)
class Shown:
    """One sample: the predictions of head and auxiliary classifier, and the true class if known."""

    sample: int
    truth: str | None
    head: str
    head_confidence: float
    auxiliary: str | None = None
    """None if there is no auxiliary classifier, or if several classes are its most probable."""
    auxiliary_confidence: float | None = None
    file: str | None = None
    """Its path in the data's folder; None if it is not a file, or the data could not be read."""


@dataclass(frozen=True)
class Latents:
    """The flow's latents in their first two principal components, with the class means and scales of its mixture."""

    of: str
    samples: list[int]
    points: list[tuple[float, float]]
    labels: list[int]
    colored_by: str
    centres: list[tuple[float, float] | None]
    """Mean of the points of each class; None if it has none."""
    means: list[tuple[float, float]]
    """Means of the Gaussians of the flow's mixture."""
    scales: list[float]
    explained: tuple[float, float]


@dataclass(frozen=True)
class Next:
    """What to do next, and its command."""

    what: str
    command: str


@dataclass(frozen=True)
class Findings:
    """A run in numbers. Fields that could not be determined are None; ``left_out`` has the reasons."""

    name: str
    method: str
    noun: str
    """What a sample is called: images or samples, in the plural."""
    auxiliary: str | None
    """The name of the second classifier."""
    classes: tuple[str, ...]
    evaluated_on: str | None
    n: int
    accuracy: float | None
    interval: tuple[float, float] | None
    balanced_accuracy: float | None
    """Mean recall of the classes: the accuracy if all were equally frequent."""
    macro_f1: float | None
    """Mean F1 of the classes."""
    curves: dict[str, Curve]
    trained_on: int | None
    """Number of unlabelled samples of known class if their labels are all trained on; None if others are known."""
    confusion: list[list[int]] | None
    per_class: list[dict[str, Any]] | None
    calibration: Calibration | None
    balance: Balance | None
    agreement: Agreement | None
    disputed: list[Shown] | None
    errors: list[Shown] | None
    latents: Latents | None
    warnings: list[dict[str, Any]]
    left_out: dict[str, str]
    command: str
    next: list[Next]
    config: dict[str, Any]
    result: dict[str, Any]


def examine(evidence: Evidence) -> Findings:
    """All findings that the evidence allows."""
    left_out: dict[str, str] = {}

    def found(name: str, value: T | str) -> T | None:
        if isinstance(value, str):
            left_out[name] = value
            return None
        return value

    config, run, spec, scored = evidence.config, evidence.run, evidence.model.spec, evidence.scored
    result = run.result
    n, accuracy = result["n"], result["accuracy"]
    unscored = evidence.gone_or(f"No {evidence.noun} of known class were held out: {run.how_to_test}.")
    table = found(
        "classes", metrics.confusion(scored.labels, scored.predicted, len(spec.classes)) if scored else unscored
    )
    means = metrics.averages(scored.labels, scored.predicted) if scored else {}
    if evidence.gone and evidence.noun == "images":
        left_out["pictures"] = evidence.gone_or("")
    curves = curves_of(list(run.metrics()))
    if not any(name.startswith("pseudo/") for name in curves):
        left_out["pseudo"] = f"{config.method} makes no pseudo-labels."
    auxiliary = spec.auxiliary[0].kind if spec.auxiliary else None
    agreed = found("disputed", _agreement(evidence))
    return Findings(
        name=config.name,
        method=config.method,
        noun=evidence.noun,
        auxiliary="flow" if auxiliary == "nfc" else "second head" if auxiliary else None,
        classes=spec.classes,
        evaluated_on=result["evaluated_on"],
        n=n,
        accuracy=accuracy,
        interval=wilson_interval(round(accuracy * n), n) if n else None,
        balanced_accuracy=means.get("balanced_accuracy"),
        macro_f1=means.get("macro_f1"),
        curves=curves,
        trained_on=_trained_on(run),
        confusion=table.tolist() if table is not None else None,
        per_class=metrics.per_class(scored.labels, scored.predicted, spec.classes) if scored else None,
        calibration=found("calibration", _calibration(evidence, scored) if scored else unscored),
        balance=found("balance", _balance(evidence)),
        agreement=agreed,
        disputed=_disputed(evidence) if agreed else None,
        errors=found("errors", _errors(evidence, scored) if scored else unscored),
        latents=found("latents", _latents(evidence)),
        warnings=run.warnings,
        left_out=left_out,
        command=repeat_command(run.path),
        next=next_steps(run),
        config=to_json(config),
        result=result,
    )


def curves_of(records: list[dict[str, Any]]) -> dict[str, Curve]:
    """Each metric over the steps. Accuracies stay as they are; groups of neighbours of others are averaged, at the
    step of the last of each, so that at most ``MOST_POINTS`` are left."""
    curves: dict[str, Curve] = {}
    for record in records:
        for name, value in record.items():
            if name not in ("step", "seconds") and not isinstance(value, list):
                curves.setdefault(name, []).append((record["step"], value))
    return {name: c if name.endswith("/accuracy") else _averaged(c) for name, c in curves.items()}


def _averaged(curve: Curve) -> Curve:
    size = math.ceil(len(curve) / MOST_POINTS)
    thinned: Curve = []
    for i in range(0, len(curve), size):
        group = curve[i : i + size]
        known = [value for _, value in group if value is not None]
        thinned.append((group[-1][0], sum(known) / len(known) if known else None))
    return thinned


def _calibration(evidence: Evidence, scored: HeldOutPredictions) -> Calibration:
    held, validation, n = evidence.held_out, evidence.validation, len(scored.samples)
    before = metrics.reliability(scored.confidence, scored.correct)
    after: NDArray[np.float64] | None = None
    temperatures: tuple[float, ...] = ()
    if held is None:
        how = "No temperature was fitted: the data could not be read again."
    elif validation is not None and len(validation.samples) >= metrics.LEAST_TO_FIT:
        temperatures = (metrics.fit_temperature(validation.logits, validation.dataset.labels),)
        after = metrics.soften(held.logits, temperatures[0])
        fitted = f"{len(validation.samples)} validation {evidence.noun}"
        how = f"The temperature was fitted on {fitted} and scored on the test {evidence.noun}."
        if evidence.model.spec.temperature is not None:
            how += " normatch predict applies it."
    elif n >= metrics.LEAST_TO_FIT:
        after, temperatures = metrics.cross_fit(held.logits, scored.labels, evidence.config.seed)
        how = (
            f"Two temperatures were fitted by cross-fitting: each random half of the {n} {scored.which} "
            f"{evidence.noun} is scored at the temperature of the other half."
        )
    else:
        how = f"No temperature was fitted: {n} {evidence.noun} are too few."
    scaled = metrics.reliability(after.max(1), after.argmax(1) == scored.labels) if after is not None else None
    return Calibration(
        before, metrics.mean_gap(before), scaled, metrics.mean_gap(scaled) if scaled else None, temperatures, how
    )


def _trained_on(run: Run) -> int | None:
    # From the run's files, not from the data, which may have moved and of which Balance knows only some.
    split = run.split
    if sum(run.result.get("label_counts", {}).values()) != len(split.labelled) + len(split.validation):
        return None
    return int(np.isin(split.labelled, split.unlabelled).sum())


def _balance(evidence: Evidence) -> Balance | str:
    predicted, method = evidence.unlabelled, evidence.config.method
    if not methods.get(method).views.unlabelled:
        return f"{method} makes no pseudo-labels."
    if predicted is None:
        return evidence.gone_or(f"There are no unlabelled {evidence.noun}.")
    classes, labels = len(evidence.model.spec.classes), predicted.dataset.labels
    known = labels[labels != UNKNOWN]
    return Balance(
        n=len(labels),
        of=len(evidence.run.split.unlabelled),
        known=len(known),
        pseudo=np.bincount(predicted.logits.argmax(1), minlength=classes).tolist(),
        truth=np.bincount(known, minlength=classes).tolist(),
    )


def _agreement(evidence: Evidence) -> Agreement | str:
    predicted = evidence.shown
    if not evidence.model.spec.auxiliary:
        return f"{evidence.config.method} has no second classifier to disagree with the head."
    if predicted is None or predicted.auxiliary is None:
        return evidence.gone_or(f"There are no {evidence.noun} to look at.")
    head, other = predicted.logits.argmax(1), metrics.untied_argmax(predicted.auxiliary)
    labels = predicted.dataset.labels if predicted.which != "unlabelled" else np.full(len(head), UNKNOWN)
    agree, known = metrics.agreement(predicted.p, predicted.auxiliary), labels != UNKNOWN

    def accuracy(guess: NDArray[np.int64], where: NDArray[np.bool_]) -> float | None:
        return float((guess == labels)[where & known].mean()) if (where & known).any() else None

    return Agreement(
        of=evidence.described(predicted),
        n=len(head),
        agree=int(agree.sum()),
        accuracy_agree=accuracy(head, agree),
        accuracy_disagree=accuracy(head, ~agree),
        accuracy_auxiliary=accuracy(other, np.ones_like(agree)),
    )


def _disputed(evidence: Evidence) -> list[Shown]:
    """Samples for which both do not name the same class, those of largest total variation ½ Σ |p_d − p_n| first."""
    predicted = evidence.shown
    assert predicted is not None
    assert predicted.auxiliary is not None
    p, q = predicted.p, predicted.auxiliary
    distance = np.abs(p - q).sum(1) / 2
    rows = np.flatnonzero(~metrics.agreement(p, q))
    return _shown(evidence, predicted, rows[np.argsort(-distance[rows], kind="stable")][:MOST_SHOWN])


def _errors(evidence: Evidence, scored: HeldOutPredictions) -> list[Shown]:
    """Wrong predictions, the most confident first."""
    rows = np.flatnonzero(~scored.correct)
    rows = rows[np.argsort(-scored.confidence[rows], kind="stable")][:MOST_SHOWN]
    if evidence.held_out is not None:
        return _shown(evidence, evidence.held_out, rows)
    names = evidence.model.spec.classes
    columns = (a[rows].tolist() for a in (scored.samples, scored.labels, scored.predicted, scored.confidence))
    return [Shown(at, names[truth], names[head], p) for at, truth, head, p in zip(*columns, strict=True)]


def _shown(evidence: Evidence, predicted: Predicted, rows: NDArray[np.int64]) -> list[Shown]:
    p, q, names = predicted.p, predicted.auxiliary, (*evidence.model.spec.classes, None)  # UNKNOWN, −1, is None
    other = metrics.untied_argmax(q) if q is not None else np.full(len(p), UNKNOWN)
    labels, files = predicted.dataset.labels, predicted.dataset.files
    return [
        Shown(
            sample=int(predicted.samples[row]),
            truth=names[labels[row]],
            head=names[p[row].argmax()] or "",
            head_confidence=float(p[row].max()),
            auxiliary=names[other[row]],
            auxiliary_confidence=float(q[row].max()) if q is not None else None,
            file=str(files[row]) if files is not None else None,
        )
        for row in rows
    ]


def _latents(evidence: Evidence) -> Latents | str:
    predicted, flow = evidence.shown, evidence.model.flow
    if flow is None:
        return f"This run of {evidence.config.method} has no flow."
    if predicted is None or predicted.latents is None:
        return evidence.gone_or(f"There are no {evidence.noun} to look at.")
    if len(predicted.samples) < 3:
        return f"{len(predicted.samples)} {evidence.noun} are too few to draw a plane through."
    from sklearn.decomposition import PCA

    rows = sample(len(predicted.samples), MOST_LATENTS, evidence.config.seed, "latents")
    with np.errstate(invalid="ignore"):  # latents that are all the same have no variance to explain
        plane = PCA(2, svd_solver="full").fit(predicted.latents[rows])
    first, second = np.nan_to_num(plane.explained_variance_ratio_).tolist()
    by_truth = predicted.which != "unlabelled"
    labels = predicted.dataset.labels[rows] if by_truth else predicted.logits[rows].argmax(1)
    points = plane.transform(predicted.latents[rows])
    centres = [
        points[labels == k].mean(0).tolist() if k in labels else None for k in range(len(evidence.model.spec.classes))
    ]
    return Latents(
        of=evidence.described(predicted),
        samples=predicted.samples[rows].tolist(),
        points=[(x, y) for x, y in points.tolist()],
        labels=labels.tolist(),
        colored_by="true class" if by_truth else "predicted class",
        centres=[centre and (centre[0], centre[1]) for centre in centres],
        means=[(x, y) for x, y in plane.transform(_array(flow.mixture.means)).tolist()],
        scales=_array(flow.mixture.scales).tolist(),
        explained=(first, second),
    )


def next_steps(run: Run) -> list[Next]:
    """More labels for the user's own data, another seed, and the use of the model."""

    def command(*words: object) -> str:
        return shlex.join(["normatch", *map(str, words)])

    config, place = run.config, run.path
    seed = config.seed + 1
    other = place.with_name(f"{place.name}-seed{seed}")
    steps = []
    if config.data not in sources and len(run.split.unlabelled):
        table = place / "suggested.csv"
        steps.append(Next("Find out what to label next", command("suggest", place, "--out", table)))
    if run.result["n"]:
        again = repeat_command(place, "--seed", str(seed), "--out", str(other))
        steps.append(Next("Train with another seed, to see how much the accuracy varies", again))
        steps.append(Next("Compare the seeds", command("compare", place, other)))
    steps.append(Next("Predict new data", command("predict", place, "NEW", "--out", "labels.csv")))
    steps.append(Next("Export the model, for programs without normatch", command("export", place)))
    return steps
