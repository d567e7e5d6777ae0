"""Detect what goes wrong with pseudo-labels while a run trains: named alarms, each with a remedy.

A rule is a function of the run (:class:`Case`) and its newest records (:class:`History`) alone, so that replaying the
records of a stopped run gives the same alarms. An alarm is raised once, at the first step at which its rule holds.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from normatch.data.split import describe_ratio, skewed
from normatch.training.reference import MOST_ITEMS

__all__ = ["NOT_FINITE", "Alarm", "Case", "Diagnosis", "History"]

NOT_FINITE = "not-finite"
"""The alarm that ends a run."""

SETTLED = 5
"""Epochs (but at most half of the run) before pseudo-labels are judged: an untrained network names few classes, and
NorMatch's flow learns with full weight only after its fifth epoch."""

EARLIEST = 100
"""Step before which no run is judged, however short its epochs: a trial of a few steps proves nothing."""

FEW_LABELS = 4
"""Labels per class: the fewest with which, according to the literature, these methods work more often than not."""

USED = 0.1
"""A class is in use if it has at least this fraction of its expected share of the pseudo-labels. So a class ten times
rarer than the mean, as in the usual long-tailed benchmarks, is still in use."""

COLLAPSED = 0.5
"""If at most this fraction of the classes is in use, it is a collapse: imbalanced data alone hardly look like that."""

IMBALANCE = 10.0
"""Ratio of the commonest to the rarest class among the pseudo-labels, each as a multiple of its expected share: the
lowest that the literature calls long-tailed. Five seeds of digits-40 stay under 1.5 once settled, with NorMatch and
with FixMatch, whose alignment is off."""

CHANCE = 1.25
"""Two independent classifiers agree on 1/K of the items; agreement up to this multiple of 1/K counts as chance."""

NEVER = 0.02
"""Below this share of pseudo-labels above the confidence threshold, next to nothing is learnt from them."""

ALWAYS = 0.98
"""From this share of trusted pseudo-labels on, the weights no longer discriminate."""

FITTED = 0.75
"""Accuracy on the labelled items that a network which learns exceeds soon, since few labels are quickly memorised."""

FALL = 0.02
"""Least drop of the validation accuracy that counts; it must also exceed three standard errors, and last for two
consecutive evaluations."""


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
    labels: tuple[int, ...]
    """Labelled items of each class."""
    steps: int
    epoch: int
    alignment: bool | None = None
    """Whether the method aligns pseudo-labels to equally frequent classes; None if it cannot."""
    threshold: bool = False
    """Whether the method has a confidence threshold."""
    rates: tuple[str, ...] = ("--optim.lr",)
    """The flags of the learning rates, first the backbone's."""
    bfloat16: bool = False
    """Whether the backbone computes in bfloat16."""
    last_start: int = 0
    """The step from which all of the method's losses count."""
    pseudo_labels: bool = True
    """Whether the method learns from unlabelled items."""
    validation: int = 0
    """Number of validation items."""
    reference: float | None = None
    """Validation accuracy of the nearest class mean of the labelled items, as a baseline without any network."""

    @property
    def skewed(self) -> bool:
        """Whether the labels are so uneven that the items are expected to be, too."""
        return skewed(self.labels)

    @property
    def expected(self) -> list[float]:
        """The share of each class that pseudo-labels should have: that of the labels if they are skewed, else equal."""
        return [n / sum(self.labels) if self.skewed else 1 / len(self.labels) for n in self.labels]


@dataclass
class History:
    """The newest records, and what the rules need of the older ones."""

    window: list[dict[str, Any]] = field(default_factory=list)
    """Records of the last epoch."""
    validation: list[float] = field(default_factory=list)
    """All validation accuracies."""
    fitted: float | None = None
    """The newest accuracy on labelled items."""

    def mean(self, name: str) -> float | None:
        """Mean of a number over the window."""
        values = [record[name] for record in self.window if record.get(name) is not None]
        return sum(values) / len(values) if values else None

    def means(self, name: str) -> list[float] | None:
        """Mean of a vector over the window."""
        rows = [record[name] for record in self.window if record.get(name) is not None]
        return [sum(column) / len(rows) for column in zip(*rows, strict=True)] if rows else None


Finding = tuple[str, str]
"""What is wrong, and what to try: only what the run's method has and what is not done already."""

Rule = Callable[[Case, History], Finding | None]


def few_labels(case: Case, history: History) -> Finding | None:
    least = min(case.labels)
    if least >= FEW_LABELS:
        return None
    few = [name for name, n in zip(case.classes, case.labels, strict=True) if n < FEW_LABELS]
    which = f"class {few[0]!r} has" if len(few) == 1 else f"{len(few)} of {len(case.classes)} classes have"
    remedy = f"label at least {FEW_LABELS} items of each class, or expect results that vary by seed"
    return f"{which} fewer than {FEW_LABELS} labels (the least is {least})", remedy


def skewed_labels(case: Case, history: History) -> Finding | None:
    if not case.alignment or not case.skewed:
        return None
    message = f"labels are {describe_ratio(case.labels)}, but alignment makes all classes equally frequent"
    return message, "turn it off with --settings.no-alignment, unless the unlabelled items are balanced"


def ends_before_ramp(case: Case, history: History) -> Finding | None:
    if not case.last_start or case.steps > case.last_start:
        return None
    begins = f"its loss begins after {case.last_start} steps, the run has {case.steps}"
    remedy = "train longer, or lower --epoch, in which ramps are counted"
    return f"a part of the method never learns: {begins}", remedy


def not_finite(case: Case, history: History) -> Finding | None:
    # A recorded mean is None if nothing was counted or it is not finite; these are always counted.
    newest = history.window[-1]
    counted = [value for name, value in newest.items() if name == "loss" or name.endswith("/accuracy")]
    if None not in counted:
        return None
    exact = "--precision float32" if case.bfloat16 else None
    todo = _any_of(*(f"a lower {rate}" for rate in case.rates), exact)
    return "loss, weights, running statistics or predictions are not finite", f"start another run with {todo}"


def collapse(case: Case, history: History) -> Finding | None:
    shares = history.means("pseudo/classes")
    if shares is None:
        return None
    count = len(case.classes)
    used = sum(share >= USED * expected for share, expected in zip(shares, case.expected, strict=True))
    if used > COLLAPSED * count:
        return None
    remedy = _any_of(
        _change_alignment(case), _raise_threshold(case), f"lower {case.rates[0]}", "label more of the missing classes"
    )
    return f"pseudo-labels name {used} of {count} classes; {_commonest(case, shares)}", remedy


def imbalance(case: Case, history: History) -> Finding | None:
    shares = history.means("pseudo/classes")
    if shares is None or collapse(case, history):
        return None
    expected = case.expected
    multiples = [share / fair for share, fair in zip(shares, expected, strict=True)]
    if max(multiples) < IMBALANCE * min(multiples):
        return None
    most, least = (multiples.index(pick(multiples)) for pick in (max, min))
    found = f"{shares[most]:.1%} are {case.classes[most]!r}, {shares[least]:.1%} are {case.classes[least]!r}"
    if case.skewed:
        off = "turn off alignment (--settings.no-alignment)" if case.alignment else None
        todo = _any_of(off, "label more of the rare classes", f"lower {case.rates[0]}")
        found += f" (of the labels {expected[most]:.1%} and {expected[least]:.1%})"
        return found, f"if the unlabelled items are as uneven as the labels, {todo}"
    if case.alignment:
        return found, "if the items themselves are imbalanced, turn off alignment (--settings.no-alignment)"
    todo = _any_of(_change_alignment(case), _raise_threshold(case), f"lower {case.rates[0]}")
    return found, f"if the items themselves are balanced, {todo}; else label more of the rare classes"


def never_trusted(case: Case, history: History) -> Finding | None:
    trusted = history.mean("pseudo/trusted")
    if trusted is None:
        return None
    lower = "lower --settings.threshold" if case.threshold else None
    remedy = _any_of("train longer", f"raise {case.rates[0]}", lower, "label more")
    if history.mean("pseudo/uncertainty_auxiliary") is None:
        message = f"{trusted:.1%} of the pseudo-labels are confident enough to count"
        return (message, remedy) if trusted < NEVER else None
    chance = 1 / len(case.classes)
    message = f"the classifiers agree on {trusted:.1%} of the pseudo-labels, by chance it would be {chance:.1%}"
    return (message, remedy) if trusted <= CHANCE * chance else None


def always_trusted(case: Case, history: History) -> Finding | None:
    trusted = history.mean("pseudo/trusted")
    if trusted is None or trusted < ALWAYS or history.fitted is None or history.fitted >= FITTED:
        return None
    right = f"only {history.fitted:.0%} of the labelled items are right"
    todo = _any_of(_raise_threshold(case), f"lower {case.rates[0]}", "check the labels")
    remedy = f"pseudo-labels are believed before there is anything to believe: {todo}"
    return f"{trusted:.1%} of the pseudo-labels are trusted, but {right}", remedy


def validation_falls(case: Case, history: History) -> Finding | None:
    if len(history.validation) < 3:
        return None
    best = max(history.validation)
    fall = best - max(history.validation[-2:])
    if fall <= max(FALL, 3 * _error(best, case.validation)):
        return None
    todo = _any_of(_change_alignment(case), f"lower {case.rates[0]}", "train fewer --steps")
    remedy = f"wrong pseudo-labels may be reinforcing themselves: {todo}" if case.pseudo_labels else todo
    return f"validation accuracy fell from {best:.1%} to {history.validation[-1]:.1%}", remedy


def validation_below_reference(case: Case, history: History) -> Finding | None:
    if case.reference is None or not history.validation:
        return None
    now = history.validation[-1]
    if case.reference - now <= 2 * _error(case.reference, min(case.validation, MOST_ITEMS)):
        return None
    reference = f"the nearest class mean of the labelled items alone has {case.reference:.1%}"
    remedy = _any_of("train longer", "choose a smaller --backbone", "check the labels")
    if case.pseudo_labels:
        todo = "check that they are of the same classes, and compare with --method supervised"
        remedy = f"the unlabelled items do harm: {todo}"
    return f"validation accuracy is {now:.1%}, but {reference}", remedy


def _any_of(*todo: str | None) -> str:
    """The things to try, without those that are None, as a list in words."""
    *others, last = [thing for thing in todo if thing is not None]
    return f"{', '.join(others)}, or {last}" if others else last


def _change_alignment(case: Case) -> str | None:
    """Turn alignment on where it is off, unless the labels are skewed; where it is on, off if they are."""
    if case.alignment is None or case.alignment != case.skewed:
        return None
    return "turn off alignment (--settings.no-alignment)" if case.alignment else "turn on --settings.alignment"


def _raise_threshold(case: Case) -> str | None:
    return "raise --settings.threshold" if case.threshold else None


START: dict[str, Rule] = {
    "few-labels": few_labels,
    "skewed-labels": skewed_labels,
    "ends-before-ramp": ends_before_ramp,
}
"""Rules about the labelled set and the schedule: judged once, before the first step."""

ALWAYS_JUDGED: dict[str, Rule] = {NOT_FINITE: not_finite}
"""Rules judged at every record."""

ONCE_SETTLED: dict[str, Rule] = {
    "collapse": collapse,
    "imbalance": imbalance,
    "never-trusted": never_trusted,
    "always-trusted": always_trusted,
    "validation-falls": validation_falls,
    "validation-below-reference": validation_below_reference,
}
"""Rules judged once the run has settled."""


class Diagnosis:
    """The alarms of a run so far."""

    def __init__(self, case: Case) -> None:
        self.alarms: list[Alarm] = []
        self.case = case
        self._history = History()
        self._settled = max(EARLIEST, min(SETTLED * case.epoch, case.steps // 2))
        self._judge(0, START)

    def see(self, step: int, record: dict[str, Any]) -> list[Alarm]:
        """Apply the rules to the record of a step; return the new alarms."""
        before, history = len(self.alarms), self._history
        recent = [old for old in history.window if old["step"] > step - self.case.epoch]
        history.window = [*recent, {"step": step} | record]
        if record.get("validation/accuracy") is not None:
            history.validation.append(record["validation/accuracy"])
        history.fitted = record.get("labelled/accuracy", history.fitted)
        self._judge(step, ALWAYS_JUDGED)
        broken = len(self.alarms) > before
        if step >= self._settled and not broken:
            self._judge(step, ONCE_SETTLED)
        return self.alarms[before:]

    def replay(self, lines: Iterable[dict[str, Any]]) -> None:
        """Apply the rules to the lines of a stopped run's ``metrics.jsonl``."""
        for line in lines:
            self.see(line["step"], line)

    def _judge(self, step: int, rules: dict[str, Rule]) -> None:
        raised = {alarm.name for alarm in self.alarms}
        for name, rule in rules.items():
            found = None if name in raised else rule(self.case, self._history)
            if found is not None:
                self.alarms.append(Alarm(name, step, *found))


def _commonest(case: Case, shares: list[float]) -> str:
    top = max(range(len(shares)), key=shares.__getitem__)
    return f"{shares[top]:.1%} are {case.classes[top]!r}"


def _error(accuracy: float, n: int) -> float:
    """Standard error of an accuracy over ``n`` items, with two more right and two more wrong (Agresti and Coull): else
    it would be 0 if all are right, and a single error would prove something."""
    accuracy = (accuracy * n + 2) / (n + 4)
    return math.sqrt(accuracy * (1 - accuracy) / (n + 4))
