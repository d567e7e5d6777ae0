"""The numbers of a report: the page shows them and ``--json`` prints them.

They are made from the files of a finished run and, if its data can be read again, from new predictions.
"""

import math
import shlex
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

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

__all__ = ["Evidence", "Numbers", "Predicted", "curves_of", "examine", "gather", "next_steps"]

Numbers = dict[str, Any]
"""One section of the findings, or all of them: plain values by their names in JSON."""

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

    # The same as of stored predictions.

    @property
    def labels(self) -> NDArray[np.int64]:
        return self.dataset.labels

    @property
    def predicted(self) -> NDArray[np.int64]:
        return np.asarray(self.logits.argmax(1))

    @property
    def confidence(self) -> NDArray[np.float64]:
        return np.asarray(self.p.max(1))


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
        held, validation, unlabelled = _predict_all(run, corpus_of(run, moved, reading), model)
    except (UserError, OSError) as error:
        if moved != STAYED or isinstance(error, CacheError):
            raise
        return Evidence(run, config, model, scored, gone=str(error))
    if scored is None and held is not None and held.which != "unlabelled":
        # Only then: stored predictions take precedence, because another device may round differently.
        scored = HeldOutPredictions(held.which, held.samples, held.labels, held.predicted, held.confidence)
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


def examine(evidence: Evidence) -> Numbers:
    """All findings that the evidence allows. The others are None, and ``left_out`` has the reasons."""
    config, run, spec, scored = evidence.config, evidence.run, evidence.model.spec, evidence.scored
    result, curves = run.result, curves_of(run.metrics())
    n, accuracy = result["n"], result["accuracy"]
    unscored = evidence.gone_or(f"No {evidence.noun} of known class were held out: {run.how_to_test}.")
    sections: dict[str, Numbers | str] = {
        "classes": _classes(scored, spec.classes) if scored else unscored,
        "calibration": _calibration(evidence, scored) if scored else unscored,
        "balance": _balance(evidence),
        "disputed": _disputed(evidence),
        "errors": {"errors": _errors(evidence, scored)} if scored else unscored,
        "latents": _latents(evidence),
    }
    left_out = {name: found for name, found in sections.items() if isinstance(found, str)}
    found = {name: None if isinstance(section, str) else section for name, section in sections.items()}
    if evidence.gone and evidence.noun == "images":
        left_out["pictures"] = evidence.gone_or("")
    if not any(name.startswith("pseudo/") for name in curves):
        left_out["pseudo"] = f"{config.method} makes no pseudo-labels."
    auxiliary = spec.auxiliary[0].kind if spec.auxiliary else None
    return {
        "name": config.name,
        "method": config.method,
        "noun": evidence.noun,  # what a sample is called, in the plural
        "auxiliary": "flow" if auxiliary == "nfc" else "second head" if auxiliary else None,
        "classes": list(spec.classes),
        "evaluated_on": result["evaluated_on"],
        "n": n,
        "accuracy": accuracy,
        "interval": wilson_interval(round(accuracy * n), n) if n else None,
        "baselines": result["baselines"],
        **(found["classes"] or dict.fromkeys(("balanced_accuracy", "macro_f1", "confusion", "per_class"))),
        "curves": curves,
        "trained_on": _trained_on(run),
        "calibration": found["calibration"],
        "balance": found["balance"],
        **(found["disputed"] or {"agreement": None, "disputed": None}),
        **(found["errors"] or {"errors": None}),
        "latents": found["latents"],
        "warnings": run.warnings,
        "left_out": left_out,
        "command": repeat_command(run.path),
        "next": next_steps(run),
        "config": to_json(config),
        "result": result,
    }


def curves_of(records: Iterable[dict[str, Any]]) -> dict[str, Curve]:
    """Each metric over the steps. Accuracies stay as they are; groups of neighbours of others are averaged, at the
    step of the last of each, so that at most ``MOST_POINTS`` are left."""
    found: dict[str, tuple[array[float], array[float]]] = {}  # 16 bytes a point, of which there may be millions
    for record in records:
        for name, value in record.items():
            if name not in ("step", "seconds") and not isinstance(value, list):
                if name not in found:
                    found[name] = array("d"), array("d")
                steps, values = found[name]
                steps.append(record["step"])
                values.append(math.nan if value is None else value)
    curves = {}
    for name, (steps, values) in found.items():
        size = 1 if name.endswith("/accuracy") else math.ceil(len(steps) / MOST_POINTS)
        curves[name] = _averaged(steps, values, size)
    return curves


def _averaged(steps: Sequence[float], values: Sequence[float], size: int) -> Curve:
    curve: Curve = []
    for i in range(0, len(steps), size):
        known = [value for value in values[i : i + size] if not math.isnan(value)]
        last = min(i + size, len(steps)) - 1
        curve.append((int(steps[last]), sum(known) / len(known) if known else None))
    return curve


def _classes(scored: HeldOutPredictions, classes: tuple[str, ...]) -> Numbers:
    """Balanced accuracy, macro-F1, the confusion matrix (rows are the truth), and scores of each class."""
    means = metrics.averages(scored.labels, scored.predicted)
    return {
        "balanced_accuracy": means["balanced_accuracy"],
        "macro_f1": means["macro_f1"],
        "confusion": metrics.confusion(scored.labels, scored.predicted, len(classes)).tolist(),
        "per_class": metrics.per_class(scored.labels, scored.predicted, classes),
    }


def _calibration(evidence: Evidence, scored: HeldOutPredictions) -> Numbers:
    """Confidence against accuracy, before and after temperature scaling; ``how`` says on what it was fitted."""
    held, validation, noun, n = evidence.held_out, evidence.validation, evidence.noun, len(scored.samples)
    before = metrics.reliability(scored.confidence, scored.correct)
    after: NDArray[np.float64] | None = None
    temperatures: tuple[float, ...] = ()
    if held is None:
        how = "No temperature was fitted: the data could not be read again."
    elif validation is not None and len(validation.samples) >= metrics.LEAST_TO_FIT:
        temperatures = (metrics.fit_temperature(validation.logits, validation.labels),)
        after = metrics.soften(held.logits, temperatures[0])
        fitted = f"{len(validation.samples)} validation {noun}"
        how = f"The temperature was fitted on {fitted} and scored on the test {noun}."
        if evidence.model.spec.temperature is not None:
            how += " normatch predict applies it."
    elif n >= metrics.LEAST_TO_FIT:
        after, temperatures = metrics.cross_fit(held.logits, scored.labels, evidence.config.seed)
        how = (
            f"Two temperatures were fitted by cross-fitting: each random half of the {n} {scored.which} {noun} is "
            "scored at the temperature of the other half."
        )
    else:
        how = f"No temperature was fitted: {n} {noun} are too few."
    scaled = metrics.reliability(after.max(1), after.argmax(1) == scored.labels) if after is not None else None
    return {
        "before": before,
        "error_before": metrics.mean_gap(before),
        "after": scaled,
        "error_after": metrics.mean_gap(scaled) if scaled else None,
        "temperatures": temperatures,
        "how": how,
    }


def _trained_on(run: Run) -> int | None:
    """Number of unlabelled samples of known class if their labels are all trained on; None if others are known."""
    # From the run's files, not from the data, which may have moved and of which the balance knows only some.
    split = run.split
    if sum(run.result.get("label_counts", {}).values()) != len(split.labelled) + len(split.validation):
        return None
    return int(np.isin(split.labelled, split.unlabelled).sum())


def _balance(evidence: Evidence) -> Numbers | str:
    """How often each class is predicted for ``n`` of all ``of`` unlabelled samples, and is the truth of ``known``."""
    predicted, method = evidence.unlabelled, evidence.config.method
    if not methods.get(method).views.unlabelled:
        return f"{method} makes no pseudo-labels."
    if predicted is None:
        return evidence.gone_or(f"There are no unlabelled {evidence.noun}.")
    classes, known = len(evidence.model.spec.classes), predicted.labels[predicted.labels != UNKNOWN]
    return {
        "n": len(predicted.samples),
        "of": len(evidence.run.split.unlabelled),
        "known": len(known),
        "pseudo": np.bincount(predicted.predicted, minlength=classes).tolist(),
        "truth": np.bincount(known, minlength=classes).tolist(),
    }


def _disputed(evidence: Evidence) -> Numbers | str:
    """How often head and auxiliary classifier name the same class, and samples for which they do not, those of largest
    total variation ½ Σ |p_d − p_n| first. Accuracies are None if no class is known."""
    predicted = evidence.shown
    if not evidence.model.spec.auxiliary:
        return f"{evidence.config.method} has no second classifier to disagree with the head."
    if predicted is None or predicted.auxiliary is None:
        return evidence.gone_or(f"There are no {evidence.noun} to look at.")
    p, q = predicted.p, predicted.auxiliary
    agree, known = metrics.agreement(p, q), predicted.labels != UNKNOWN
    if predicted.which == "unlabelled":
        known[:] = False  # labels that the run did not use score nothing

    def accuracy(guess: NDArray[np.int64], where: NDArray[np.bool_]) -> float | None:
        return float((guess == predicted.labels)[where & known].mean()) if (where & known).any() else None

    agreement = {
        "of": evidence.described(predicted),
        "n": len(agree),
        "agree": int(agree.sum()),
        "accuracy_agree": accuracy(predicted.predicted, agree),
        "accuracy_disagree": accuracy(predicted.predicted, ~agree),
        "accuracy_auxiliary": accuracy(metrics.untied_argmax(q), np.ones_like(agree)),
    }
    rows = _first(np.flatnonzero(~agree), np.abs(p - q).sum(1))
    return {"agreement": agreement, "disputed": _cases(evidence, predicted, rows, predicted)}


def _errors(evidence: Evidence, scored: HeldOutPredictions) -> list[Numbers]:
    """Wrong predictions, the most confident first."""
    return _cases(evidence, scored, _first(np.flatnonzero(~scored.correct), scored.confidence), evidence.held_out)


def _first(rows: NDArray[np.int64], values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Those ``rows`` that are shown: of the largest values."""
    return rows[np.argsort(-values[rows], kind="stable")][:MOST_SHOWN]


def _cases(
    evidence: Evidence, head: Predicted | HeldOutPredictions, rows: NDArray[np.int64], more: Predicted | None
) -> list[Numbers]:
    """Samples with the predictions of the head and, of ``more``, those of the auxiliary classifier, and files."""
    names = (*evidence.model.spec.classes, None)  # UNKNOWN, −1, is None
    samples, labels, predicted, confidence = head.samples, head.labels, head.predicted, head.confidence
    q, files = (more.auxiliary, more.dataset.files) if more is not None else (None, None)
    other = metrics.untied_argmax(q) if q is not None else np.full(len(samples), UNKNOWN)
    return [
        {
            "sample": int(samples[row]),
            "truth": names[labels[row]],
            "head": names[predicted[row]],
            "head_confidence": float(confidence[row]),
            "auxiliary": names[other[row]],
            "auxiliary_confidence": float(q[row].max()) if q is not None else None,
            "file": str(files[row]) if files is not None else None,
        }
        for row in rows
    ]


def _latents(evidence: Evidence) -> Numbers | str:
    """The flow's latents in their first two principal components, the mean of each class, and the means and scales of
    the Gaussians of the flow's mixture."""
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
    by_truth = predicted.which != "unlabelled"
    labels = (predicted.labels if by_truth else predicted.predicted)[rows]
    points = plane.transform(predicted.latents[rows])
    classes = range(len(evidence.model.spec.classes))
    return {
        "of": evidence.described(predicted),
        "samples": predicted.samples[rows].tolist(),
        "points": points.tolist(),
        "labels": labels.tolist(),
        "colored_by": "true class" if by_truth else "predicted class",
        "centres": [points[labels == k].mean(0).tolist() if k in labels else None for k in classes],
        "means": plane.transform(_array(flow.mixture.means)).tolist(),
        "scales": _array(flow.mixture.scales).tolist(),
        "explained": np.nan_to_num(plane.explained_variance_ratio_).tolist(),
    }


def next_steps(run: Run) -> list[dict[str, str]]:
    """What to do next, each with its command: label more of the user's own data, try another seed, use the model."""
    config, place = run.config, run.path
    other = place.with_name(f"{place.name}-seed{config.seed + 1}")
    steps = {}
    if config.data not in sources and len(run.split.unlabelled):
        steps["Find out what to label next"] = ["suggest", place, "--out", place / "suggested.csv"]
    if run.result["n"]:
        again = ["train", "--config", place / "config.json", "--seed", config.seed + 1, "--out", other]
        steps["Train with another seed, to see how much the accuracy varies"] = again
        steps["Compare the seeds"] = ["compare", place, other]
    steps["Predict new data"] = ["predict", place, "NEW", "--out", "labels.csv"]
    steps["Export the model, for programs without normatch"] = ["export", place]
    return [{"what": what, "command": shlex.join(map(str, ["normatch", *words]))} for what, words in steps.items()]
