"""The exponential moving average of the model's weights: the model that is evaluated and saved (Section 4.1)."""

import copy

import torch
from torch import Tensor

from normatch.nets.model import Model

__all__ = ["EMA"]


class EMA:
    """θ̄ ← decay · θ̄ + (1 − decay) · θ after each step; buffers (batch-norm statistics) are copied."""

    def __init__(self, model: Model, decay: float, ramp: bool) -> None:
        self.decay = decay
        self.ramp = ramp
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        # Listed once: on a CPU, walking through all modules at each step takes longer than the arithmetic.
        self._mine: list[Tensor] = list(self.model.parameters())
        self._theirs: list[Tensor] = list(model.parameters())
        buffers = list(zip(self.model.buffers(), model.buffers(), strict=True))
        # Grouped by dtype, so that one kernel copies all buffers of a dtype.
        dtypes = dict.fromkeys(mine.dtype for mine, _ in buffers)
        self._copies = [tuple(zip(*(b for b in buffers if b[0].dtype == dtype), strict=True)) for dtype in dtypes]

    @torch.no_grad()
    def update(self, step: Tensor) -> None:
        if self.ramp:
            weight = 1 - ((1 + step) / (10 + step)).clamp(max=self.decay)
            change = torch._foreach_sub(self._theirs, self._mine)
            torch._foreach_mul_(change, weight)
            torch._foreach_add_(self._mine, change)
        else:
            torch._foreach_lerp_(self._mine, self._theirs, 1 - self.decay)
        for mine, theirs in self._copies:
            torch._foreach_copy_(mine, theirs)
