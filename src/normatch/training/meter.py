"""Means that are accumulated on the device and read by the host only now and then."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from normatch.errors import UserError
from normatch.training.curves import Mean

__all__ = ["Measured", "Meter", "Record", "measure"]

Record = dict[str, float | list[float] | None]
"""Means by name: numbers, or lists for vectors; None if nothing was counted or a mean is not finite."""

DIGITS = 6
"""Decimal columns of a vector's means, to keep lines of metrics short with many classes."""

Shapes = dict[str, tuple[int, ...]]


class Measured(NamedTuple):
    """The open means of one step, concatenated."""

    shapes: Shapes
    values: Tensor
    """(2, n) sums and counts."""


def measure(means: dict[str, Mean]) -> Measured:
    """Concatenate open means to one tensor, as part of the compiled step."""
    sums, counts = (torch.cat([pair[i].detach().reshape(-1) for pair in means.values()]) for i in (0, 1))
    return Measured({name: tuple(total.shape) for name, (total, _) in means.items()}, torch.stack([sums, counts]))


class Meter:
    """Sums and counts of named quantities since the last reading; each is a scalar or a vector of fixed length."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._start({})

    def add(self, measured: Measured) -> None:
        """Add one step's open means; names and shapes must be the same at each step."""
        if list(self._shapes) != list(measured.shapes):
            self._arrange(measured.shapes)
        self._totals += measured.values

    def read(self) -> Record:
        """The means since the last reading, None where nothing was counted or a mean is not finite.

        Waits for the device.
        """
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
        if before and before.keys() != shapes.keys():
            changes = {"new": shapes.keys() - before.keys(), "missing": before.keys() - shapes.keys()}
            listed = "; ".join(f"{change}: {', '.join(sorted(names))}" for change, names in changes.items() if names)
            raise UserError(
                f"the method's losses and metrics are not those of the steps before ({listed}): return the same at "
                "every step or, if its code has changed, undo that or start another run with another --out"
            )
        if before:
            self.load({name: before[name] for name in shapes})
        else:
            self._start(shapes)

    def _columns(self) -> dict[str, slice]:
        """The columns of the totals that belong to each name."""
        columns, start = {}, 0
        for name, shape in self._shapes.items():
            columns[name] = slice(start, start + math.prod(shape))
            start += math.prod(shape)
        return columns
