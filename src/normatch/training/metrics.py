"""The metrics of a step: losses, the method's own, and the quality of pseudo-labels, summed on the device.

The host reads them only now and then. The quality of pseudo-labels (Figures 3 and 4) is computed here, outside the
method, which never sees the truth.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from normatch.data import UNKNOWN
from normatch.errors import UserError
from normatch.methods import Outcome, PseudoLabels

__all__ = [
    "HIGH_CONFIDENCE",
    "RESERVED",
    "RESERVED_PREFIXES",
    "Mean",
    "Measured",
    "Meter",
    "Record",
    "measure",
    "pseudo_label_quality",
    "step_means",
    "total_loss",
]

RESERVED = ("step", "seconds", "steps_per_second", "loss")
RESERVED_PREFIXES = ("loss/", "pseudo/", "test/", "validation/", "labelled/")
"""Names of each run's own records, which no metric of a method may use."""

HIGH_CONFIDENCE = 0.95
"""The confidence threshold with which Figures 3 and 4 and Table 3 compare."""

DIGITS = 6
"""Decimals of a vector's means, to keep lines of metrics short with many classes."""

Mean = tuple[Tensor, Tensor]
"""A sum and a count, not divided yet; both scalars, or vectors of the same fixed length."""

Record = dict[str, float | list[float] | None]
"""Means by name: numbers, or lists for vectors; None if nothing was counted or a mean is not finite."""

Shapes = dict[str, tuple[int, ...]]


class Measured(NamedTuple):
    """The means of one step, concatenated."""

    shapes: Shapes
    values: Tensor
    """(2, n) sums and counts."""


def total_loss(outcome: Outcome) -> Tensor:
    """The sum of a method's losses, which is minimised."""
    if not isinstance(outcome, Outcome):
        raise UserError(f"the method gives {_kind(outcome)}: return an Outcome of losses and metrics, both by name")
    if not outcome.losses:
        raise UserError("the method gives no losses: return at least one by name")
    for name, value in outcome.losses.items():
        _must_be_scalar(f"loss {name!r}", value)
    total = torch.stack(list(outcome.losses.values())).sum()
    if not total.requires_grad:
        raise UserError("the method's losses depend on no parameter: return them with their gradients, not detached")
    return total


def step_means(outcome: Outcome, loss: Tensor, truth: Tensor, classes: int) -> dict[str, Mean]:
    """All metrics of a step by name; ``truth`` are the true labels of the unlabelled images."""
    one = torch.ones((), device=loss.device)
    _must_be_metrics(outcome.metrics)
    values = {"loss": loss} | {f"loss/{name}": value for name, value in outcome.losses.items()} | outcome.metrics
    means: dict[str, Mean] = {name: (value.float(), one) for name, value in values.items()}
    if outcome.pseudo is not None:
        _must_be_pseudo_labels(outcome.pseudo, truth)
        means |= pseudo_label_quality(outcome.pseudo, truth, classes)
    return means


def pseudo_label_quality(pseudo: PseudoLabels, truth: Tensor, classes: int) -> dict[str, Mean]:
    """Means over the batch; those that need the truth count only images whose class is known.

    Figure 3: shares trusted, above the threshold, and correct. Figure 4: accuracy of trusted, distrusted and
    above-threshold pseudo-labels, mean weight of the distrusted, uncertainty 1 − p̄ of both classifiers. In addition
    ``pseudo/classes`` (K,), the share of each class, which shows a collapse.
    """
    # In float32 whatever the weights are: a method may give a mask, and bfloat16 counts to 256 only.
    every = torch.ones_like(pseudo.weight, dtype=torch.float32)
    named = F.one_hot(pseudo.label, classes).to(every.dtype).sum(0)
    trusted = pseudo.trusted.to(every.dtype)
    distrusted = 1 - trusted
    confident = (pseudo.confidence > HIGH_CONFIDENCE).to(every.dtype)
    known = (truth != UNKNOWN).to(every.dtype)
    correct = (pseudo.label == truth).to(every.dtype)
    means = {
        "pseudo/trusted": _mean(trusted, every),
        "pseudo/confident": _mean(confident, every),
        "pseudo/correct": _mean(correct, known),
        "pseudo/accuracy_trusted": _mean(correct, known * trusted),
        "pseudo/accuracy_distrusted": _mean(correct, known * distrusted),
        "pseudo/accuracy_confident": _mean(correct, known * confident),
        "pseudo/weight": _mean(pseudo.weight, every),
        "pseudo/weight_distrusted": _mean(pseudo.weight, distrusted),
        "pseudo/uncertainty": _mean(1 - pseudo.confidence, every),
        "pseudo/classes": (named, every.sum().expand_as(named)),
    }
    if pseudo.auxiliary is not None:
        means["pseudo/uncertainty_auxiliary"] = _mean(1 - pseudo.auxiliary, every)
    return means


def _mean(values: Tensor, weights: Tensor) -> Mean:
    return (values * weights).sum(), weights.sum()


def measure(means: dict[str, Mean]) -> Measured:
    """Concatenate means to one tensor, as part of the compiled step."""
    sums, counts = (torch.cat([pair[i].detach().reshape(-1) for pair in means.values()]) for i in (0, 1))
    return Measured({name: tuple(total.shape) for name, (total, _) in means.items()}, torch.stack([sums, counts]))


class Meter:
    """Sums and counts of named quantities since the last reading; each is a scalar or a vector of fixed length."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._start({})

    def add(self, measured: Measured) -> None:
        """Add one step's means; names and shapes must be the same at each step."""
        if list(self._shapes) != list(measured.shapes):
            self._arrange(measured.shapes)
        self._totals += measured.values

    def read(self) -> Record:
        """The means since the last reading. Waits for the device."""
        sums, counts = self._totals.tolist()
        self._totals.zero_()
        means = [s / n if n else math.nan for s, n in zip(sums, counts, strict=True)]
        record: Record = {}
        for name, at in self._columns().items():
            values = means[at]
            if not all(map(math.isfinite, values)):
                record[name] = None
            elif self._shapes[name]:
                record[name] = [round(value, DIGITS) for value in values]
            else:
                (record[name],) = values
        return record

    def state(self) -> dict[str, Tensor]:
        return {name: self._totals[:, at].clone().view(2, *self._shapes[name]) for name, at in self._columns().items()}

    def load(self, state: dict[str, Tensor]) -> None:
        self._start({name: tuple(value.shape[1:]) for name, value in state.items()})
        for name, at in self._columns().items():
            self._totals[:, at] = state[name].reshape(2, -1).to(self._device)

    def _start(self, shapes: Shapes) -> None:
        self._shapes = shapes
        total = sum(map(math.prod, shapes.values()))
        self._totals = torch.zeros(2, total, device=self._device, dtype=torch.float64)

    def _arrange(self, shapes: Shapes) -> None:
        """Adopt the order of ``shapes``, from which that of a checkpoint may differ."""
        before = self.state()
        if not before:
            self._start(shapes)
        elif before.keys() == shapes.keys():
            self.load({name: before[name] for name in shapes})
        else:
            raise UserError(
                f"the method's losses and metrics are {', '.join(sorted(shapes))}, at the steps before they were "
                f"{', '.join(sorted(before))}: return the same at every step or, if its code has changed, undo that "
                "or start another run with another --out"
            )

    def _columns(self) -> dict[str, slice]:
        """The columns of the totals that belong to each name."""
        columns, start = {}, 0
        for name, shape in self._shapes.items():
            columns[name] = slice(start, start + math.prod(shape))
            start += math.prod(shape)
        return columns


def _must_be_metrics(metrics: dict[str, Tensor]) -> None:
    if not isinstance(metrics, dict):
        raise UserError(f"metrics of the method's outcome are {_kind(metrics)}: give a dict, or {{}} if there are none")
    for name, value in metrics.items():
        if name in RESERVED or name.startswith(RESERVED_PREFIXES):
            raise UserError(f"the method has a metric {name!r}, a name that each run's record has already: rename it")
        _must_be_scalar(f"metric {name!r}", value)


def _must_be_scalar(name: str, value: Tensor) -> None:
    if not isinstance(value, Tensor) or value.ndim:
        raise UserError(f"{name} of the method is {_kind(value)}: give a tensor of one number, of shape ()")


def _must_be_pseudo_labels(pseudo: PseudoLabels, truth: Tensor) -> None:
    """Raise UserError unless there is one of everything for each image: others might be broadcast, or counted wrongly.

    Only shapes and types are looked at, never values, so that the step stays one graph.
    """
    if not isinstance(pseudo, PseudoLabels):
        raise UserError(f"pseudo of the method's outcome is {_kind(pseudo)}: give PseudoLabels, or None")
    dtypes = {"label": torch.int64, "trusted": torch.bool}
    for name, value in zip(PseudoLabels._fields, pseudo, strict=True):
        if name == "auxiliary" and value is None:
            continue
        if not isinstance(value, Tensor) or value.shape != truth.shape:
            raise UserError(
                f"{name} of the pseudo-labels is {_kind(value)}: give a tensor of shape {tuple(truth.shape)}, "
                "one value for each unlabelled image"
            )
        if value.dtype != dtypes.get(name, value.dtype):
            raise UserError(f"{name} of the pseudo-labels is of {value.dtype}: give a tensor of {dtypes[name]}")


def _kind(value: object) -> str:
    return f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
