"""The numbers of a report, JSON-ready: the page shows them and ``--json`` prints them."""

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from normatch.config import to_json
from normatch.data import UNKNOWN
from normatch.errors import repeat_command
from normatch.evaluate.answers import Answers
from normatch.evaluate.metrics import (
    Bin,
    agreement,
    confusion,
    cross_fit,
    fit_temperature,
    mean_gap,
    named,
    per_class,
    reliability,
    soften,
)
from normatch.report.evidence import Evidence, Predicted
from normatch.report.thinning import Curve, averaged
from normatch.seeding import sample
from normatch.significance import wilson_interval

__all__ = ["Agreement", "Balance", "Calibration", "Curve", "Findings", "Latents", "ShownItem", "curves_of", "examine"]

T = TypeVar("T")

MOST_CASES = 12
"""Most items shown of each kind."""
LATENT_SAMPLE = 800
"""Most items whose latents are drawn."""
LEAST_TO_SCALE = 20
"""Least number of items to fit a temperature on."""
LEAST_TO_DRAW = 3
"""Least number of items to draw latents of: two principal components need three points."""


@dataclass(frozen=True)
class Calibration:
    """Confidence against accuracy, before and after temperature scaling."""

    before: tuple[Bin, ...]
    error_before: float
    after: tuple[Bin, ...] | None
    error_after: float | None
    temperatures: tuple[float, ...]
    how: str
    """A sentence on the items on which the temperature was fitted, or on why none was."""


@dataclass(frozen=True)
class Balance:
    """How often each class is a pseudo-label, and how often it is the true class, where known."""

    n: int
    of: int
    """Number of all unlabelled items, of which ``n`` were predicted again."""
    known: int
    pseudo: list[int]
    truth: list[int]


@dataclass(frozen=True)
class Agreement:
    """Head and auxiliary classifier on the same items; accuracies are None if no class is known."""

    of: str
    n: int
    agree: int
    accuracy_agree: float | None
    accuracy_disagree: float | None
    accuracy_auxiliary: float | None


@dataclass(frozen=True)
class ShownItem:
    """One item: the predictions of head and auxiliary classifier, and the true class if known."""

    item: int
    truth: str | None
    head: str
    head_confidence: float
    auxiliary: str | None
    """None if there is no auxiliary classifier, or if it finds several classes likeliest."""
    auxiliary_confidence: float | None
    file: str | None = None
    """Its path in the data's folder; None if it is not a file, or the data could not be read."""


@dataclass(frozen=True)
class Latents:
    """The flow's latents in their first two principal components, with the class means and scales of its mixture."""

    of: str
    items: list[int]
    points: list[tuple[float, float]]
    labels: list[int]
    coloured_by: str
    centres: list[tuple[float, float] | None]
    """Mean of the points of each class; None if it has none."""
    means: list[tuple[float, float]]
    """Means of the Gaussians of the flow's mixture."""
    scales: list[float]
    explained: tuple[float, float]


@dataclass(frozen=True)
class Findings:
    """A run in numbers. Fields that could not be determined are None; ``left_out`` has the reasons."""

    name: str
    method: str
    auxiliary: str | None
    """The name of the second classifier."""
    classes: tuple[str, ...]
    evaluated_on: str | None
    n: int
    accuracy: float | None
    interval: tuple[float, float] | None
    curves: dict[str, Curve]
    learnt: int | None
    """Number of unlabelled items of known class if their labels are all trained on; None if other classes are known."""
    confusion: list[list[int]] | None
    per_class: list[dict[str, Any]] | None
    calibration: Calibration | None
    balance: Balance | None
    agreement: Agreement | None
    disputed: list[ShownItem] | None
    errors: list[ShownItem] | None
    latents: Latents | None
    warnings: list[dict[str, Any]]
    left_out: dict[str, str]
    command: str
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

    answers, result = evidence.answers, evidence.result
    n, accuracy = result["n"], result["accuracy"]
    table = confusion(answers.labels, answers.guess, len(evidence.classes)) if answers else None
    unscored = evidence.gone_or(f"No item with a known class was held out: {evidence.run.how_to_test}.")
    if table is None:
        left_out["classes"] = unscored
    if evidence.gone and len(evidence.shape) == 3:
        left_out["pictures"] = evidence.gone_or("")
    curves = curves_of(evidence.records)
    if not any(name.startswith("pseudo/") for name in curves):
        left_out["pseudo"] = f"{evidence.config.method} makes no pseudo-labels."
    return Findings(
        name=evidence.config.name,
        method=evidence.config.method,
        auxiliary={"nfc": "flow", "mlp": "second head", None: None}[evidence.auxiliary],
        classes=evidence.classes,
        evaluated_on=result["evaluated_on"],
        n=n,
        accuracy=accuracy,
        interval=wilson_interval(round(accuracy * n), n) if n else None,
        curves=curves,
        learnt=_learnt(evidence),
        confusion=table.tolist() if table is not None else None,
        per_class=per_class(table, evidence.classes) if table is not None else None,
        calibration=found("calibration", _calibration(evidence) if answers else unscored),
        balance=found("balance", _balance(evidence)),
        agreement=(agreement := found("disputed", _agreement(evidence))),
        disputed=_disputed(evidence) if agreement else None,
        errors=found("errors", _errors(evidence, answers) if answers else unscored),
        latents=found("latents", _latents(evidence)),
        warnings=evidence.warnings,
        left_out=left_out,
        command=repeat_command(evidence.run.path),
        config=to_json(evidence.config),
        result=result,
    )


def curves_of(records: list[dict[str, Any]]) -> dict[str, Curve]:
    """Each metric over the steps. Accuracies stay as they are; long curves of others are thinned by averaging."""
    names = dict.fromkeys(name for record in records for name in record)
    curves: dict[str, Curve] = {}
    for name in names:
        curve: Curve = [(record["step"], record[name]) for record in records if name in record]
        if name in ("step", "seconds") or any(isinstance(value, list) for _, value in curve):
            continue
        curves[name] = curve if name.endswith("/accuracy") else averaged(curve)
    return curves


def _calibration(evidence: Evidence) -> Calibration:
    answers, held, validation = evidence.answers, evidence.held_out, evidence.validation
    assert answers is not None
    before = reliability(answers.confidence, answers.correct)
    after: NDArray[np.float64] | None = None
    temperatures: tuple[float, ...] = ()
    if held is None:
        how = "No temperature was fitted: the data could not be read again."
    elif validation is not None and len(validation.items) >= LEAST_TO_SCALE:
        temperatures = (fit_temperature(validation.logits, validation.dataset.labels),)
        after = soften(held.logits, temperatures[0])
        how = f"The temperature was fitted on {len(validation.items)} validation items and scored on the test items."
    elif len(answers.items) >= LEAST_TO_SCALE:
        after, temperatures = cross_fit(held.logits, answers.labels, evidence.config.seed)
        how = (
            f"Two temperatures were fitted by cross-fitting: each random half of the {len(answers.items)} "
            f"{answers.which} items is scored at the temperature of the other half."
        )
    else:
        how = f"No temperature was fitted: {len(answers.items)} items are too few."
    softened = reliability(after.max(1), after.argmax(1) == answers.labels) if after is not None else None
    return Calibration(
        before=before,
        error_before=mean_gap(before),
        after=softened,
        error_after=mean_gap(softened) if softened is not None else None,
        temperatures=temperatures,
        how=how,
    )


def _learnt(evidence: Evidence) -> int | None:
    # From the run's files, not from the data, which may have moved and of which Balance knows only a sample.
    split = evidence.run.split
    known = sum(evidence.result.get("label_counts", {}).values())
    if known != len(split.labelled) + len(split.validation):
        return None
    return int(np.isin(split.labelled, split.unlabelled).sum())


def _balance(evidence: Evidence) -> Balance | str:
    items = evidence.unlabelled
    if not evidence.makes_pseudo_labels:
        return f"{evidence.config.method} makes no pseudo-labels."
    if items is None:
        return evidence.gone_or("There are no unlabelled items.")
    classes, labels = len(evidence.classes), items.dataset.labels
    known = labels[labels != UNKNOWN]
    return Balance(
        n=len(labels),
        of=len(evidence.run.split.unlabelled),
        known=len(known),
        pseudo=np.bincount(items.logits.argmax(1), minlength=classes).tolist(),
        truth=np.bincount(known, minlength=classes).tolist(),
    )


def _agreement(evidence: Evidence) -> Agreement | str:
    items = evidence.shown
    if evidence.auxiliary is None:
        return f"{evidence.config.method} has no second classifier to disagree with the head."
    if items is None or items.auxiliary is None:
        return evidence.gone_or("There are no items to look at.")
    head, other = items.logits.argmax(1), named(items.auxiliary)
    labels = items.dataset.labels if items.which != "unlabelled" else np.full(len(head), UNKNOWN)
    agree, known = agreement(items.p, items.auxiliary), labels != UNKNOWN

    def accuracy(guess: NDArray[np.int64], where: NDArray[np.bool_]) -> float | None:
        return float((guess == labels)[where & known].mean()) if (where & known).any() else None

    return Agreement(
        of=items.described,
        n=len(head),
        agree=int(agree.sum()),
        accuracy_agree=accuracy(head, agree),
        accuracy_disagree=accuracy(head, ~agree),
        accuracy_auxiliary=accuracy(other, np.ones_like(agree)),
    )


def _disputed(evidence: Evidence) -> list[ShownItem]:
    """Items for which both do not name the same class, those of largest total variation ½ Σ |p_d − p_n| first."""
    items = evidence.shown
    assert items is not None
    assert items.auxiliary is not None
    p, q = items.p, items.auxiliary
    distance = np.abs(p - q).sum(1) / 2
    rows = np.flatnonzero(~agreement(p, q))
    return _cases(evidence, items, rows[np.argsort(-distance[rows], kind="stable")][:MOST_CASES])


def _errors(evidence: Evidence, answers: Answers) -> list[ShownItem]:
    """Wrong answers, the most confident first."""
    rows = np.flatnonzero(~answers.correct)
    rows = rows[np.argsort(-answers.confidence[rows], kind="stable")][:MOST_CASES]
    if evidence.held_out is not None:
        return _cases(evidence, evidence.held_out, rows)
    names = evidence.classes
    return [
        ShownItem(
            int(answers.items[row]),
            names[answers.labels[row]],
            names[answers.guess[row]],
            float(answers.confidence[row]),
            None,
            None,
        )
        for row in rows
    ]


def _cases(evidence: Evidence, items: Predicted, rows: NDArray[np.int64]) -> list[ShownItem]:
    names, p, q = evidence.classes, items.p, items.auxiliary
    other = named(q) if q is not None else np.full(len(p), UNKNOWN)
    labels, files = items.dataset.labels, items.dataset.files
    return [
        ShownItem(
            item=int(items.items[row]),
            truth=names[labels[row]] if labels[row] != UNKNOWN else None,
            head=names[p[row].argmax()],
            head_confidence=float(p[row].max()),
            auxiliary=names[other[row]] if other[row] != UNKNOWN else None,
            auxiliary_confidence=float(q[row].max()) if q is not None else None,
            file=str(files[row]) if files is not None else None,
        )
        for row in rows
    ]


def _latents(evidence: Evidence) -> Latents | str:
    items, flow = evidence.shown, evidence.flow
    if flow is None:
        return f"This run of {evidence.config.method} has no flow."
    if items is None or items.latents is None:
        return evidence.gone_or("There are no items to look at.")
    if len(items.items) < LEAST_TO_DRAW:
        return f"{len(items.items)} items are too few to draw a plane through."
    rows = sample(len(items.items), LATENT_SAMPLE, evidence.config.seed, "latents")
    latents = items.latents[rows]
    centre = latents.mean(0)
    components, explained = _principal(latents - centre)
    by_truth = items.which != "unlabelled"
    labels = items.dataset.labels[rows] if by_truth else items.logits[rows].argmax(1)
    points, names = (latents - centre) @ components.T, range(len(evidence.classes))
    return Latents(
        of=items.described,
        items=items.items[rows].tolist(),
        points=_pairs(points),
        centres=[_pairs(points[labels == k].mean(0, keepdims=True))[0] if k in labels else None for k in names],
        labels=labels.tolist(),
        coloured_by="the true class" if by_truth else "the class that the head names",
        means=_pairs((flow.means - centre) @ components.T),
        scales=flow.scales.tolist(),
        explained=explained,
    )


def _pairs(points: NDArray[np.float64]) -> list[tuple[float, float]]:
    return [(x, y) for x, y in points.tolist()]


def _principal(centred: NDArray[np.float64]) -> tuple[NDArray[np.float64], tuple[float, float]]:
    """The first two principal components (2, D) of centred rows, and the shares of the variance they explain."""
    _, singular, components = np.linalg.svd(centred, full_matrices=False)
    first = components[:2]
    # The sign of a component is arbitrary: make its largest entry positive, so that pictures are reproducible.
    signs = np.sign(first[np.arange(2), np.abs(first).argmax(1)])
    variance = singular**2
    share = variance[:2] / max(float(variance.sum()), np.finfo(float).tiny)
    return first * signs[:, None], (float(share[0]), float(share[1]))
