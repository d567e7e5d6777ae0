"""Detect what goes wrong with pseudo-labels while a run trains: named alarms, each with a remedy.

A rule is a function of the run (:class:`Case`) and its newest records (:class:`History`) alone, so that replaying the
records of a stopped run gives the same alarms. An alarm is raised once, at the first step at which its rule holds.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from normatch.engine.reference import MOST_ITEMS

__all__ = ["NOT_FINITE", "Alarm", "Case", "Diagnosis", "History"]

NOT_FINITE = "not-finite"
"""The alarm that ends a run."""

SETTLED = 5
"""Epochs (but at most half of the run) before pseudo-labels are judged: an untrained network names few classes, and
NorMatch's flow learns with full weight only from its fifth epoch on."""

EARLIEST = 100
"""Step before which no run is judged, however short its epochs: a trial of a few steps proves nothing."""

FEW_LABELS = 4
"""Labels per class: the fewest with which, according to the literature, these methods work more often than not."""

USED = 0.1
"""A class is in use if it has at least this fraction of its fair share 1/K of the pseudo-labels. So a class ten times
rarer than the mean, as in the usual long-tailed benchmarks, is still in use."""

COLLAPSED = 0.5
"""If at most this fraction of the classes is in use, it is a collapse: imbalanced data alone hardly look like that."""

IMBALANCE = 10.0
"""Ratio of the commonest to the rarest class among the pseudo-labels: the lowest that the literature calls long-tailed.
Five seeds of digits-40 stay under 1.5 once settled, with NorMatch and with FixMatch, which has no alignment."""

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
    validation: int = 0
    """Number of validation items."""
    reference: float | None = None
    """Validation accuracy of the nearest class mean of the labelled items, as a baseline without any network."""


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


Rule = Callable[[Case, History], str | None]
"""Returns a message on what is wrong, or None."""


def few_labels(case: Case, history: History) -> str | None:
    least = min(case.labels)
    if least >= FEW_LABELS:
        return None
    few = [name for name, n in zip(case.classes, case.labels, strict=True) if n < FEW_LABELS]
    which = f"class {few[0]!r} has" if len(few) == 1 else f"{len(few)} of {len(case.classes)} classes have"
    return f"{which} fewer than {FEW_LABELS} labels (the least is {least})"


def not_finite(case: Case, history: History) -> str | None:
    # A recorded mean is None if nothing was counted or it is not finite; a loss is counted at every step.
    newest = history.window[-1]
    return "loss or weights are not finite numbers" if "loss" in newest and newest["loss"] is None else None


def collapse(case: Case, history: History) -> str | None:
    shares = history.means("pseudo/classes")
    if shares is None:
        return None
    count = len(case.classes)
    used = sum(share >= USED / count for share in shares)
    if used > COLLAPSED * count:
        return None
    return f"pseudo-labels name {used} of {count} classes; {_commonest(case, shares)}"


def imbalance(case: Case, history: History) -> str | None:
    shares = history.means("pseudo/classes")
    if shares is None or max(shares) < IMBALANCE * min(shares) or collapse(case, history):
        return None
    rarest = min(range(len(shares)), key=shares.__getitem__)
    return f"{_commonest(case, shares)}, {shares[rarest]:.1%} are {case.classes[rarest]!r}"


def never_trusted(case: Case, history: History) -> str | None:
    trusted = history.mean("pseudo/trusted")
    if trusted is None:
        return None
    if history.mean("pseudo/uncertainty_auxiliary") is None:
        return f"{trusted:.1%} of the pseudo-labels are confident enough to count" if trusted < NEVER else None
    chance = 1 / len(case.classes)
    if trusted > CHANCE * chance:
        return None
    return f"the classifiers agree on {trusted:.1%} of the pseudo-labels, by chance it would be {chance:.1%}"


def always_trusted(case: Case, history: History) -> str | None:
    trusted = history.mean("pseudo/trusted")
    if trusted is None or trusted < ALWAYS or history.fitted is None or history.fitted >= FITTED:
        return None
    return (
        f"{trusted:.1%} of the pseudo-labels are trusted, but only {history.fitted:.0%} of the labelled items are right"
    )


def validation_falls(case: Case, history: History) -> str | None:
    if len(history.validation) < 3:
        return None
    best = max(history.validation)
    fall = best - max(history.validation[-2:])
    if fall <= max(FALL, 3 * _error(best, case.validation)):
        return None
    return f"validation accuracy fell from {best:.1%} to {history.validation[-1]:.1%}"


def validation_below_reference(case: Case, history: History) -> str | None:
    if case.reference is None or not history.validation:
        return None
    now = history.validation[-1]
    if case.reference - now <= 2 * _error(case.reference, min(case.validation, MOST_ITEMS)):
        return None
    return (
        f"validation accuracy is {now:.1%}, but the nearest class mean of the labelled items alone has "
        f"{case.reference:.1%}"
    )


_MORE_SURE = "train longer or with a higher --optim.lr, lower the threshold where the method has one, or label more"

START: dict[str, tuple[Rule, str]] = {
    "few-labels": (few_labels, f"label at least {FEW_LABELS} items of each class, or expect results that vary by seed"),
}
"""Rules about the labelled set: judged once, before the first step."""

ALWAYS_JUDGED: dict[str, tuple[Rule, str]] = {
    NOT_FINITE: (
        not_finite,
        "start another run with a lower --optim.lr, or with --precision float32 if it had bfloat16",
    ),
}
"""Rules judged at every record."""

ONCE_SETTLED: dict[str, tuple[Rule, str]] = {
    "collapse": (
        collapse,
        "turn on --settings.alignment, raise the threshold, lower --optim.lr, or label more of the missing classes",
    ),
    "imbalance": (
        imbalance,
        "if the items themselves are balanced, turn on --settings.alignment; else leave alignment off and label more "
        "of the rare classes",
    ),
    "never-trusted": (never_trusted, _MORE_SURE),
    "always-trusted": (
        always_trusted,
        "pseudo-labels are believed before there is anything to believe: raise the threshold, lower --optim.lr, or "
        "check the labels",
    ),
    "validation-falls": (
        validation_falls,
        "wrong pseudo-labels may be reinforcing themselves: turn on --settings.alignment, lower --optim.lr, or train "
        "fewer --steps",
    ),
    "validation-below-reference": (
        validation_below_reference,
        "the unlabelled items do harm: check that they are of the same classes, and compare with --method supervised",
    ),
}
"""Rules judged once the run has settled."""


class Diagnosis:
    """The alarms of a run so far."""

    def __init__(self, case: Case) -> None:
        self.alarms: list[Alarm] = []
        self._case = case
        self._history = History()
        self._settled = max(EARLIEST, min(SETTLED * case.epoch, case.steps // 2))
        self._judge(0, START)

    def see(self, step: int, record: dict[str, Any]) -> list[Alarm]:
        """Apply the rules to the record of a step; return the new alarms."""
        before, history = len(self.alarms), self._history
        recent = [old for old in history.window if old["step"] > step - self._case.epoch]
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

    def _judge(self, step: int, rules: dict[str, tuple[Rule, str]]) -> None:
        raised = {alarm.name for alarm in self.alarms}
        for name, (rule, remedy) in rules.items():
            message = None if name in raised else rule(self._case, self._history)
            if message is not None:
                self.alarms.append(Alarm(name, step, message, remedy))


def _commonest(case: Case, shares: list[float]) -> str:
    top = max(range(len(shares)), key=shares.__getitem__)
    return f"{shares[top]:.1%} are {case.classes[top]!r}"


def _error(accuracy: float, n: int) -> float:
    """Standard error of an accuracy over ``n`` items."""
    return math.sqrt(accuracy * (1 - accuracy) / n)
