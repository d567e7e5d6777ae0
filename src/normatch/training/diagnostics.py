"""Warnings while a run trains: one table of rules, each with what it sees, says and advises.

A rule looks at the facts about the run (:class:`Case`) and its newest records (:class:`History`) alone, so that
replaying the records of a stopped run gives the same warnings. The last
rule looks at the baselines of a finished run. Each is given once, at the first step at which it holds.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from normatch.data import Dataset
from normatch.data.split import describe_ratio, skewed
from normatch.seeding import sample

if TYPE_CHECKING:
    from normatch.training.baselines import Score
    from normatch.training.job import Job

__all__ = ["NOT_FINITE", "RULES", "START", "Alarm", "Case", "Diagnosis", "class_mean_accuracy"]

NOT_FINITE = "not-finite"
"""The warning that ends a run."""

# The thresholds, and why.
SETTLED = 5  # epochs, at most half of the run, before it is judged: by then NorMatch's flow learns with full weight
EARLIEST = 100  # step before which no run is judged, however short its epochs: a trial of a few steps proves nothing
FEW_LABELS = 4  # per class: the fewest with which, in the literature, these methods work more often than not
USED = 0.1  # a class with this fraction of its expected share is in use: also the rare ones of long-tailed benchmarks
COLLAPSED = 0.5  # fraction of the classes in use up to which it is a collapse: imbalanced data alone hardly do that
IMBALANCE = 10.0  # most to least frequent class, as multiples of expected shares: what the literature calls long-tailed
CHANCE = 1.25  # two independent classifiers agree on 1/K of the samples; up to this multiple, agreement is random
NEVER = 0.02  # share of pseudo-labels above the threshold below which next to nothing is learnt from them
ALWAYS = 0.98  # share of trusted pseudo-labels from which on the weights no longer discriminate
FITTED = 0.75  # accuracy on the labelled samples that a network which learns soon exceeds: few labels are memorised
FALL = 0.02  # least drop of the validation accuracy that counts, beyond three standard errors and twice in a row
START = "its start"  # the baseline that is the run from which a run started
SIGNIFICANT = 0.05  # p of McNemar's test below which a baseline is better by more than chance
MOST_SAMPLES = 2000  # labelled, and held-out, samples of the reference: it takes only seconds on any data set

OFF = "turn off alignment (--settings.no-alignment)"


@dataclass(frozen=True)
class Alarm:
    """One warning, as stored in ``warnings.json``."""

    name: str
    step: int
    message: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.name} at step {self.step}: {self.message}; {self.remedy}"


@dataclass(frozen=True)
class Case:
    """The facts about a run that the rules need besides its records."""

    classes: tuple[str, ...]
    labels: tuple[int, ...]  # of each class
    steps: int
    epoch: int
    alignment: bool | None = None  # whether pseudo-labels are aligned to equally frequent classes; None: it cannot
    threshold: bool = False  # whether the method has a confidence threshold
    rates: tuple[str, ...] = ("--optim.lr",)  # the flags of the learning rates, first the backbone's
    bfloat16: bool = False
    last_start: int = 0  # the step from which all of the method's losses count
    pseudo_labels: bool = True  # whether the method learns from unlabelled samples
    validation: int = 0  # number of validation samples
    reference: float | None = None  # validation accuracy of the nearest class mean of the labelled samples

    @classmethod
    def of(cls, job: "Job") -> "Case":
        train, split, config = job.samples.train, job.split, job.config
        counts = np.bincount(train.labels[split.labelled], minlength=len(train.classes))
        settings = dataclasses.asdict(config.settings)
        # Rates of the method's own are those of parameters that SGD does not train.
        apart = any(group.rule == "adamw" for group in job.method.groups(config.optim))
        own = [name for name, value in settings.items() if apart and name.split("_")[-1] == "lr" and value]
        rates = [*(["--optim.muon"] if config.optim.muon else []), "--optim.lr"]
        rates += [f"--settings.{name.replace('_', '-')}" for name in own]
        validating = len(split.validation)
        return cls(
            classes=train.classes,
            labels=tuple(counts.tolist()),
            steps=config.steps,
            epoch=config.epoch,
            alignment=settings.get("alignment"),
            threshold="threshold" in settings,
            rates=tuple(rates),
            bfloat16=job.runtime.bfloat16,
            last_start=job.method.last_start,
            pseudo_labels=bool(job.method.views.unlabelled),
            validation=validating,
            reference=class_mean_accuracy(train, split.labelled, split.validation) if validating else None,
        )

    @property
    def skewed(self) -> bool:
        """Whether the labels are so uneven that the samples are expected to be, too."""
        return skewed(self.labels)

    @property
    def expected(self) -> NDArray[np.float64]:
        """The share of each class that pseudo-labels should have: that of the labels if they are skewed, else equal."""
        counts = np.array(self.labels if self.skewed else [1] * len(self.labels))
        return np.asarray(counts / counts.sum())

    @property
    def remedies(self) -> list[str | None]:
        """Against wrong pseudo-labels, where the method has them: turn alignment on where it is off, unless the labels
        are skewed, or off where it is on and they are; raise the threshold; lower the learning rate."""
        change = OFF if self.alignment else "turn on --settings.alignment"
        return [
            change if self.alignment == self.skewed else None,
            "raise --settings.threshold" if self.threshold else None,
            f"lower {self.rates[0]}",
        ]


@dataclass
class History:
    """The newest records, and what the rules need of the older ones."""

    window: list[dict[str, Any]] = field(default_factory=list)
    """Records of the last epoch."""
    validation: list[float] = field(default_factory=list)
    """All validation accuracies."""
    fitted: float | None = None
    """The newest accuracy on labelled samples."""
    baselines: Sequence["Score"] = ()
    """Known at the end."""

    @property
    def better(self) -> list["Score"]:
        """The baselines that are better by more than chance."""
        return [b for b in self.baselines if b.gain > 0 and b.p is not None and b.p < SIGNIFICANT]

    def add(self, step: int, record: dict[str, Any], epoch: int) -> None:
        self.window = [*(old for old in self.window if old["step"] > step - epoch), {"step": step} | record]
        if record.get("validation/accuracy") is not None:
            self.validation.append(record["validation/accuracy"])
        self.fitted = record.get("labelled/accuracy", self.fitted)

    def mean(self, name: str) -> Any:
        """Mean of a number, or of each number of a list, over the window; None if no record has it."""
        values = [record[name] for record in self.window if record.get(name) is not None]
        return np.mean(values, axis=0) if values else None


Finding = tuple[str, str]
"""What is wrong, and what to try: only what the run's method has and what is not done already."""


class Rule(NamedTuple):
    """A row of the table."""

    name: str
    judged: Literal["at the start", "at every record", "once settled", "at the end"]
    find: Callable[[Case, History], Finding | None]
    """None where all is well."""


def _few_labels(case: Case, history: History) -> Finding | None:
    few = [name for name, n in zip(case.classes, case.labels, strict=True) if n < FEW_LABELS]
    if not few:
        return None
    which = f"class {few[0]!r} has" if len(few) == 1 else f"{len(few)} of {len(case.classes)} classes have"
    return (
        f"{which} fewer than {FEW_LABELS} labels (the least is {min(case.labels)})",
        f"label at least {FEW_LABELS} samples of each class, or expect results that vary by seed",
    )


def _skewed_labels(case: Case, history: History) -> Finding | None:
    if not case.alignment or not case.skewed:
        return None
    return (
        f"labels are {describe_ratio(case.labels)}, but alignment makes all classes equally frequent",
        "turn it off with --settings.no-alignment, unless the unlabelled samples are balanced",
    )


def _ends_before_ramp(case: Case, history: History) -> Finding | None:
    if not case.last_start or case.steps > case.last_start:
        return None
    return (
        f"a part of the method never learns: its loss begins after {case.last_start} steps, the run has {case.steps}",
        "train longer, or lower --epoch, in which ramps are counted",
    )


def _not_finite(case: Case, history: History) -> Finding | None:
    # A recorded mean is None if nothing was counted or it is not finite; these are always counted.
    newest = history.window[-1]
    if None not in [value for name, value in newest.items() if name == "loss" or name.endswith("/accuracy")]:
        return None
    exact = "--precision float32" if case.bfloat16 else None
    return (
        "loss, weights, running statistics or predictions are not finite",
        f"start another run with {_any_of(*(f'a lower {rate}' for rate in case.rates), exact)}",
    )


def _collapse(case: Case, history: History) -> Finding | None:
    shares, count = history.mean("pseudo/classes"), len(case.classes)
    if shares is None or (used := int((shares >= USED * case.expected).sum())) > COLLAPSED * count:
        return None
    top = shares.argmax()
    return (
        f"pseudo-labels name {used} of {count} classes; {shares[top]:.1%} are {case.classes[top]!r}",
        _any_of(*case.remedies, "label more samples of the missing classes"),
    )


def _imbalance(case: Case, history: History) -> Finding | None:
    shares, expected = history.mean("pseudo/classes"), case.expected
    if shares is None or _collapse(case, history):
        return None
    multiples = shares / expected
    most, least = multiples.argmax(), multiples.argmin()
    if multiples[most] < IMBALANCE * multiples[least]:
        return None
    message = f"{shares[most]:.1%} are {case.classes[most]!r}, {shares[least]:.1%} are {case.classes[least]!r}"
    rare = "label more samples of the rare classes"
    if case.skewed:
        todo = _any_of(OFF if case.alignment else None, rare, case.remedies[-1])
        return (
            f"{message} (of the labels {expected[most]:.1%} and {expected[least]:.1%})",
            f"if the unlabelled samples are as uneven as the labels, {todo}",
        )
    if case.alignment:
        return message, f"if the samples themselves are imbalanced, {OFF}"
    return message, f"if the samples themselves are balanced, {_any_of(*case.remedies)}; else {rare}"


def _never_trusted(case: Case, history: History) -> Finding | None:
    trusted, chance = history.mean("pseudo/trusted"), 1 / len(case.classes)
    if trusted is None:
        return None
    lower = "lower --settings.threshold" if case.threshold else None
    remedy = _any_of("train longer", f"raise {case.rates[0]}", lower, "label more samples")
    if history.mean("pseudo/uncertainty_auxiliary") is None:
        message = f"{trusted:.1%} of the pseudo-labels are confident enough to count"
        return (message, remedy) if trusted < NEVER else None
    message = f"the classifiers agree on {trusted:.1%} of the pseudo-labels, random ones would on {chance:.1%}"
    return (message, remedy) if trusted <= CHANCE * chance else None


def _always_trusted(case: Case, history: History) -> Finding | None:
    trusted, fitted = history.mean("pseudo/trusted"), history.fitted
    if trusted is None or trusted < ALWAYS or fitted is None or fitted >= FITTED:
        return None
    return (
        f"{trusted:.1%} of the pseudo-labels are trusted, but only {fitted:.0%} of the labelled samples are right",
        f"the network has not learnt enough to be trusted: {_any_of(*case.remedies[1:], 'check the labels')}",
    )


def _validation_falls(case: Case, history: History) -> Finding | None:
    if len(history.validation) < 3:
        return None
    best = max(history.validation)
    if best - max(history.validation[-2:]) <= max(FALL, 3 * _error(best, case.validation)):
        return None
    todo = _any_of(case.remedies[0], case.remedies[-1], "train fewer --steps")
    return (
        f"validation accuracy fell from {best:.1%} to {history.validation[-1]:.1%}",
        f"wrong pseudo-labels may be reinforcing themselves: {todo}" if case.pseudo_labels else todo,
    )


def _validation_below_reference(case: Case, history: History) -> Finding | None:
    if case.reference is None or not history.validation:
        return None
    now = history.validation[-1]
    if case.reference - now <= 2 * _error(case.reference, min(case.validation, MOST_SAMPLES)):
        return None
    harm = "check that the unlabelled samples are of the same classes, and compare with --method supervised"
    return (
        f"validation accuracy is {now:.1%}, but the nearest class mean of the labelled samples alone has "
        f"{case.reference:.1%}",
        harm if case.pseudo_labels else _any_of("train longer", "choose a smaller --backbone", "check the labels"),
    )


def _below_start(case: Case, history: History) -> Finding | None:
    start = [b for b in history.better if b.name == START]
    return (_says(start[0]), _any_of("predict with that run", "lower --optim.backbone-lr")) if start else None


def _baseline_better(case: Case, history: History) -> Finding | None:
    better = [b for b in history.better if b.name != START]
    if not better:
        return None
    best = max(better, key=lambda b: (b.stored, b.gain))
    return (
        _says(best),
        "predict with it (normatch predict RUN NEW --with baseline), or train longer"
        if best.stored
        else f"train longer, or use scikit-learn's {best.name} instead",
    )


def _says(better: "Score") -> str:
    return (
        f"{better.name} on {better.features} has {better.accuracy:.1%} of {better.n} held-out samples right, this run "
        f"{better.accuracy_of_run:.1%} (McNemar's p {better.p:.1g})"
    )


RULES = (
    Rule("few-labels", "at the start", _few_labels),
    Rule("skewed-labels", "at the start", _skewed_labels),
    Rule("ends-before-ramp", "at the start", _ends_before_ramp),
    Rule(NOT_FINITE, "at every record", _not_finite),
    Rule("collapse", "once settled", _collapse),
    Rule("imbalance", "once settled", _imbalance),
    Rule("never-trusted", "once settled", _never_trusted),
    Rule("always-trusted", "once settled", _always_trusted),
    Rule("validation-falls", "once settled", _validation_falls),
    Rule("validation-below-reference", "once settled", _validation_below_reference),
    Rule("below-start", "at the end", _below_start),
    Rule("baseline-better", "at the end", _baseline_better),
)


class Diagnosis:
    """The warnings of a run so far."""

    def __init__(self, case: Case) -> None:
        self.alarms: list[Alarm] = []
        self.case = case
        self._history = History()
        self._settled = max(EARLIEST, min(SETTLED * case.epoch, case.steps // 2))
        self._judge(0, "at the start")

    def see(self, step: int, record: dict[str, Any]) -> list[Alarm]:
        """Apply the rules to the record of a step; return the new warnings."""
        before = len(self.alarms)
        self._history.add(step, record, self.case.epoch)
        self._judge(step, "at every record")
        if step >= self._settled and len(self.alarms) == before:
            self._judge(step, "once settled")
        return self.alarms[before:]

    def end(self, step: int, baselines: Sequence["Score"]) -> list[Alarm]:
        """Apply the rules that need the baselines; return the new warnings."""
        before = len(self.alarms)
        self._history.baselines = baselines
        self._judge(step, "at the end")
        return self.alarms[before:]

    def _judge(self, step: int, judged: str) -> None:
        raised = {alarm.name for alarm in self.alarms}
        for rule in RULES:
            found = rule.find(self.case, self._history) if rule.judged == judged and rule.name not in raised else None
            if found is not None:
                self.alarms.append(Alarm(rule.name, step, *found))


def _any_of(*todo: str | None) -> str:
    """The things to try, without those that are None, as a list in words."""
    *others, last = [thing for thing in todo if thing is not None]
    return f"{', '.join(others)}, or {last}" if others else last


def _error(accuracy: float, n: int) -> float:
    """Standard error of an accuracy over ``n`` samples, with two more right and two more wrong (Agresti and Coull):
    else it would be 0 if all are right, and a single error would prove something."""
    accuracy = (accuracy * n + 2) / (n + 4)
    return math.sqrt(accuracy * (1 - accuracy) / (n + 4))


def class_mean_accuracy(dataset: Dataset, labelled: NDArray[np.int64], held_out: NDArray[np.int64]) -> float:
    """Accuracy on ``held_out`` of predicting the class with the nearest mean of labelled samples: a baseline without
    any network, below which a run should not fall.

    Distances are between pixel values, or in standard deviations of each feature. In NumPy alone, so that the result
    does not depend on the device.
    """
    known, tested = (at[sample(len(at), MOST_SAMPLES, 0, "reference")] for at in (labelled, held_out))
    scale = 1.0 if dataset.is_images else np.asarray(dataset.inputs).std(0, dtype=np.float64)
    scale = np.where(scale > 0, scale, 1)
    y = dataset.labels[known]
    classes = np.unique(y)
    means = np.stack([dataset.inputs[known[y == c]].mean(0, dtype=np.float64).ravel() for c in classes]) / scale
    norms = (means**2).sum(1)
    # One sample at a time: as float64 all would take eight times the memory of their images.
    distances = [norms - 2 * means @ (dataset.inputs[at].ravel() / scale) for at in tested]
    return float((classes[np.argmin(distances, 1)] == dataset.labels[tested]).mean())
