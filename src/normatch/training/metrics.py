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

__all__ = ["RESERVED", "Mean", "Measured", "Meter", "Record", "measure", "step_means", "total_loss"]

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
    if not isinstance(outcome, Outcome) or not outcome.losses:
        what = "no losses" if isinstance(outcome, Outcome) else type(outcome).__name__
        raise UserError(f"the method returns {what}: return an Outcome with at least one loss by name")
    for name, value in outcome.losses.items():
        _must_be(f"loss {name!r}", value, ())
    return torch.stack(list(outcome.losses.values())).sum()


def step_means(outcome: Outcome, loss: Tensor, truth: Tensor, classes: int) -> dict[str, Mean]:
    """All metrics of a step by name; ``truth`` are the true labels of the unlabelled images."""
    for name, value in outcome.metrics.items():
        if name in RESERVED or name.startswith(RESERVED_PREFIXES):
            raise UserError(f"the method has a metric {name!r}, a name that each run's record has already: rename it")
        _must_be(f"metric {name!r}", value, ())
    one = torch.ones((), device=loss.device)
    values = {"loss": loss} | {f"loss/{name}": value for name, value in outcome.losses.items()} | outcome.metrics
    means: dict[str, Mean] = {name: (value.float(), one) for name, value in values.items()}
    if outcome.pseudo is not None:
        dtypes = {"label": torch.int64, "trusted": torch.bool}
        for name, of_each in zip(PseudoLabels._fields, outcome.pseudo, strict=True):
            if of_each is not None:
                _must_be(f"{name} of the pseudo-labels", of_each, truth.shape, dtypes.get(name))
        means |= pseudo_label_quality(outcome.pseudo, truth, classes)
    return means


def _must_be(name: str, value: Tensor, shape: tuple[int, ...], dtype: torch.dtype | None = None) -> None:
    """Raise UserError unless a method returned a tensor of this shape and type: others might be broadcast.

    Never looks at values, so that the step stays one graph.
    """
    if not isinstance(value, Tensor) or value.shape != shape or dtype not in (None, value.dtype):
        is_ = f"a {value.dtype} tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)
        raise UserError(f"{name} is {is_}: return a {f'{dtype} ' if dtype else ''}tensor of shape {tuple(shape)}")


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
        self._shapes: Shapes = {}
        self._totals = torch.zeros(2, 0, device=device, dtype=torch.float64)

    def add(self, measured: Measured) -> None:
        """Add one step's means; names and shapes must be the same at each step."""
        if list(self._shapes) != list(measured.shapes):
            self._arrange(measured.shapes)
        self._totals += measured.values

    def read(self) -> Record:
        """The means since the last reading. Waits for the device."""
        sums, counts = self._totals.tolist()
        self._totals.zero_()
        means = iter([s / n if n else math.nan for s, n in zip(sums, counts, strict=True)])
        record: Record = {}
        for name, shape in self._shapes.items():
            values = [next(means) for _ in range(math.prod(shape))]
            if not all(map(math.isfinite, values)):
                record[name] = None
            else:
                record[name] = [round(value, DIGITS) for value in values] if shape else values[0]
        return record

    def state(self) -> dict[str, Tensor]:
        parts = self._totals.split([math.prod(shape) for shape in self._shapes.values()], dim=1)
        named = zip(self._shapes.items(), parts, strict=True)
        return {name: part.clone().view(2, *shape) for (name, shape), part in named}

    def load(self, state: dict[str, Tensor]) -> None:
        self._shapes = {name: tuple(value.shape[1:]) for name, value in state.items()}
        parts = [value.reshape(2, -1).to(self._totals) for value in state.values()]
        self._totals = torch.cat([self._totals[:, :0], *parts], dim=1)

    def _arrange(self, shapes: Shapes) -> None:
        """Adopt the order of ``shapes``, from which that of a checkpoint may differ."""
        before = self.state() or {name: torch.zeros(2, *shape) for name, shape in shapes.items()}
        if before.keys() != shapes.keys():
            raise UserError(
                f"the method's losses and metrics are {', '.join(sorted(shapes))}, at the steps before they were "
                f"{', '.join(sorted(before))}: return the same at every step or, if its code has changed, undo that "
                "or start another run with another --out"
            )
        self.load({name: before[name] for name in shapes})
