"""Means that are gathered on the device and read by the host only now and then."""

import math

import torch
from torch import Tensor

from normatch.engine.diagnostics import Mean

__all__ = ["Meter", "Reading"]

Reading = dict[str, float | list[float] | None]
"""Means by name: numbers, or lists of them where a mean is a vector; None where nothing was counted."""

DIGITS = 6
"""Decimal places of a vector's means: lines of metrics stay short with many classes."""


class Meter:
    """Sums and counts of named quantities since the last reading; each is a scalar or a vector of fixed length."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._shapes: dict[str, torch.Size] = {}
        self._totals = torch.zeros(2, 0, device=device, dtype=torch.float64)

    def add(self, means: dict[str, Mean]) -> None:
        """Add one step's open means; names and shapes must be the same at each step."""
        if not self._shapes:
            self._start({name: total.shape for name, (total, _) in means.items()})
        sums, counts = zip(*(means[name] for name in self._shapes), strict=True)
        self._totals += torch.stack([torch.cat([part.reshape(-1) for part in parts]) for parts in (sums, counts)])

    def read(self) -> Reading:
        """The means since the last reading, None where nothing was counted or a mean is not finite.

        Waits for the device.
        """
        sums, counts = self._totals.tolist()
        self._totals.zero_()
        means = [s / n if n else math.nan for s, n in zip(sums, counts, strict=True)]
        reading: Reading = {}
        for name, at in self._places().items():
            values = means[at]
            if not all(map(math.isfinite, values)):
                reading[name] = None
            elif self._shapes[name]:
                reading[name] = [round(value, DIGITS) for value in values]
            else:
                (reading[name],) = values
        return reading

    def state(self) -> dict[str, Tensor]:
        return {name: self._totals[:, at].clone().view(2, *self._shapes[name]) for name, at in self._places().items()}

    def load(self, state: dict[str, Tensor]) -> None:
        self._start({name: value.shape[1:] for name, value in state.items()})
        for name, at in self._places().items():
            self._totals[:, at] = state[name].reshape(2, -1).to(self._device)

    def _start(self, shapes: dict[str, torch.Size]) -> None:
        self._shapes = shapes
        total = sum(shape.numel() for shape in shapes.values())
        self._totals = torch.zeros(2, total, device=self._device, dtype=torch.float64)

    def _places(self) -> dict[str, slice]:
        """Which columns of the totals are whose."""
        places, start = {}, 0
        for name, shape in self._shapes.items():
            places[name] = slice(start, start + shape.numel())
            start += shape.numel()
        return places
