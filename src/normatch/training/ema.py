"""The exponential moving average of the model's weights: the model that is evaluated and saved (Section 4.1)."""

import copy

import torch
from torch import Tensor, nn

from normatch.methods import Method

__all__ = ["EMA"]


class EMA:
    """θ̄ ← decay · θ̄ + (1 − decay) · θ after each step; buffers (batch-norm statistics) are copied.

    ``model`` is the average of the method's model, ``heads`` that of the modules named in ``method.averaged``.
    """

    def __init__(self, method: Method, decay: float, ramp: bool) -> None:
        self.decay = decay
        self.ramp = ramp
        heads = nn.ModuleDict({name: getattr(method, name) for name in method.averaged})
        self.model = copy.deepcopy(method.model).eval().requires_grad_(False)
        self.heads = copy.deepcopy(heads).eval().requires_grad_(False)
        # Listed once: on a CPU, walking through all modules at each step takes longer than the arithmetic.
        self._mine: list[Tensor] = [*self.model.parameters(), *self.heads.parameters()]
        self._theirs: list[Tensor] = [*method.model.parameters(), *heads.parameters()]
        pairs = (self.model, method.model), (self.heads, heads)
        buffers = [b for mine, theirs in pairs for b in zip(mine.buffers(), theirs.buffers(), strict=True)]
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
