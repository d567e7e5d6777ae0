"""The running average of the model's weights, which is what is evaluated and kept (Section 4.1)."""

import copy

import torch
from torch import Tensor

from normatch.model import Model

__all__ = ["Average"]


class Average:
    """θ̄ ← decay · θ̄ + (1 − decay) · θ after each step; buffers (batch-norm statistics) are copied."""

    def __init__(self, model: Model, decay: float, ramp: bool) -> None:
        self.decay = decay
        self.ramp = ramp
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        self._source = model

    @torch.no_grad()
    def update(self, step: Tensor) -> None:
        mine: list[Tensor] = list(self.model.parameters())
        theirs: list[Tensor] = list(self._source.parameters())
        if self.ramp:
            weight = 1 - ((1 + step) / (10 + step)).clamp(max=self.decay)
            change = torch._foreach_sub(theirs, mine)
            torch._foreach_mul_(change, weight)
            torch._foreach_add_(mine, change)
        else:
            torch._foreach_lerp_(mine, theirs, 1 - self.decay)
        for dtype in {buffer.dtype for buffer in self.model.buffers()}:  # of one type, so that one kernel copies all
            pairs = zip(self.model.buffers(), self._source.buffers(), strict=True)
            copies = [(mine, theirs) for mine, theirs in pairs if mine.dtype == dtype]
            torch._foreach_copy_([mine for mine, _ in copies], [theirs for _, theirs in copies])
