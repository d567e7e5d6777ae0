"""Means that are gathered on the device and read by the host only now and then."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from normatch.engine.diagnostics import Mean

__all__ = ["Measured", "Meter", "measure"]


class Measured(NamedTuple):
    """One step's open means."""

    names: tuple[str, ...]
    values: Tensor
    """(2, names) sums and counts."""


def measure(means: dict[str, Mean]) -> Measured:
    """Open means as one tensor: part of the compiled step."""
    sums, counts = zip(*means.values(), strict=True)
    return Measured(tuple(means), torch.stack([torch.stack(sums), torch.stack(counts)]).detach())


class Meter:
    """Sums and counts of named quantities since the last reading."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._names: list[str] = []
        self._totals = torch.zeros(2, 0, device=device, dtype=torch.float64)

    def add(self, measured: Measured) -> None:
        """Add one step's open means; the names must be the same at each step."""
        if not self._names:
            self._start(list(measured.names))
        if list(measured.names) != self._names:
            raise ValueError(f"measured {', '.join(measured.names)}, where steps before had {', '.join(self._names)}")
        self._totals += measured.values

    def read(self) -> dict[str, float | None]:
        """The means since the last reading, None where nothing was counted. Waits for the device."""
        sums, counts = self._totals.tolist()
        self._totals.zero_()
        means = (s / n if n else math.nan for s, n in zip(sums, counts, strict=True))
        return {name: mean if math.isfinite(mean) else None for name, mean in zip(self._names, means, strict=True)}

    def state(self) -> dict[str, Tensor]:
        return {name: self._totals[:, i].clone() for i, name in enumerate(self._names)}

    def load(self, state: dict[str, Tensor]) -> None:
        self._start(list(state))
        for i, value in enumerate(state.values()):
            self._totals[:, i] = value.to(self._device)

    def _start(self, names: list[str]) -> None:
        self._names = names
        self._totals = torch.zeros(2, len(names), device=self._device, dtype=torch.float64)
