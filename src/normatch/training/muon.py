"""Muon: an optimiser that moves a weight matrix equally far in all its directions."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from normatch.training.lanes import Lanes

__all__ = ["Muon", "orthogonal"]

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the polynomial a·s + b·s³ + c·s⁵ that is applied to singular values s (Jordan et al., 2024): steep at 0, so that
ROUNDS of it take all from 0.005 to 1 between 0.68 and 1.16."""

ROUNDS = 5

LANES = 4
"""Shapes whose matrices are multiplied at the same time on a GPU."""

LEAST = 1e-6
"""Lengths of updates are divided by this at least: a gradient of zeros moves nothing."""

SMALLEST = 1e-15
"""Matrices are divided by this at least. The squares of much smaller numbers are 0 in float32, and so would be the
length by which they are divided: a momentum gets there if its gradients stop."""


class Muon(torch.optim.Optimizer):
    r"""Muon (Jordan et al., 2024) with Nesterov momentum, for weights whose scale has no effect.

    .. math:: M \leftarrow \mu M + G, \quad U = O(G + \mu M), \quad
              W' = W - \eta \frac{\lVert W \rVert}{\lVert U \rVert} U, \quad
              W \leftarrow \frac{\lVert W \rVert}{\lVert W' \rVert} W'

    :math:`O` makes all singular values of a matrix nearly 1; the matrix of a convolution has one row for each output
    channel. Since W keeps its length, the learning rate :math:`\eta` is the share of it by which W moves in a step, and
    weight decay would have no effect.

    Arguments:
        groups: Each with its ``params`` and ``lr``, a 0-d tensor.
        momentum: :math:`\mu`.
    """

    def __init__(self, groups: list[dict[str, Any]], momentum: float) -> None:
        super().__init__(groups, {})
        self.momentum = momentum
        self._lanes = Lanes(LANES, self.param_groups[0]["params"][0].device)
        for group in self.param_groups:
            self.state.update({p: {"momentum_buffer": torch.zeros_like(p)} for p in group["params"]})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            weights = [p for p in group["params"] if p.grad is not None]
            if not weights:
                continue
            momenta = [self.state[p]["momentum_buffer"] for p in weights]
            gradients = [p.grad for p in weights]
            torch._foreach_mul_(momenta, self.momentum)
            torch._foreach_add_(momenta, gradients)
            ahead = torch._foreach_mul(momenta, self.momentum)
            torch._foreach_add_(ahead, gradients)
            with self._lanes.open():
                updates = _orthogonal_each(ahead, self._lanes)

            lengths = torch._foreach_norm(weights)
            shares = torch._foreach_div(lengths, torch._foreach_clamp_min(torch._foreach_norm(updates), LEAST))
            torch._foreach_mul_(shares, -group["lr"])
            torch._foreach_mul_(updates, shares)
            torch._foreach_add_(weights, updates)
            torch._foreach_mul_(weights, torch._foreach_div(lengths, torch._foreach_norm(weights)))


def _orthogonal_each(tensors: Sequence[Tensor], lanes: Lanes) -> list[Tensor]:
    """:func:`orthogonal` of each tensor as a matrix of its rows, computed together for those of one shape, in a lane.

    Columns are taken in the order of memory, so that channels-last weights need no copy; their order has no effect.
    """
    found: dict[int, Tensor] = {}
    for lane, (shape, strides) in enumerate(dict.fromkeys((t.shape, t.stride()) for t in tensors)):
        alike = [i for i, t in enumerate(tensors) if (t.shape, t.stride()) == (shape, strides)]
        rows, columns = shape[0], shape[1:].numel()
        with lanes[lane]:
            matrices = torch.stack([tensors[i].as_strided((rows, columns), (columns, 1)) for i in alike])
            made = orthogonal(matrices).contiguous()
        found |= {i: one.as_strided(shape, strides) for i, one in zip(alike, made, strict=True)}
    return [found[i] for i in range(len(tensors))]


def orthogonal(matrices: Tensor) -> Tensor:
    """Matrices (K, M, N) with the same singular vectors, and singular values near 1 unless they were far below others.

    On a GPU it computes in bfloat16, which is precise enough for that.
    """
    a, b, c = COEFFICIENTS
    x = matrices.bfloat16() if matrices.is_cuda else matrices
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp_min(SMALLEST)
    tall = x.shape[1] > x.shape[2]
    x = x.mT if tall else x
    for _ in range(ROUNDS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.mT if tall else x).to(matrices.dtype)
