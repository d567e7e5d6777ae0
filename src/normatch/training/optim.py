"""The optimisers of a method's parameter groups: SGD, AdamW and Muon, with learning rates kept on the device."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from normatch.methods.parts.groups import Group, OptimConfig

__all__ = ["Muon", "Optimisers", "cosine", "orthogonal"]

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the polynomial a·s + b·s³ + c·s⁵ that Muon applies to singular values s (Jordan et al., 2024): steep at 0, so that
ROUNDS of it take all from 0.005 to 1 between 0.68 and 1.16."""

ROUNDS = 5

LEAST = 1e-6
"""Lengths of updates are divided by this at least: a gradient of zeros moves nothing."""

SMALLEST = 1e-15
"""Matrices are divided by this at least. The squares of much smaller numbers are 0 in float32, and so would be the
length by which they are divided: a momentum gets there if its gradients stop."""


def cosine(step: Tensor, total: int, angle: float) -> Tensor:
    """The schedule of all learning rates (FixMatch, Section 4.1): cos(angle · π · step/total), without warm-up, as a
    scalar on the device; the host never reads it."""
    return torch.cos(step * (angle * math.pi / total))


class Optimisers:
    """SGD, Muon and AdamW for their groups of parameters, with one schedule for all.

    Learning rates are 0-d tensors, so that a captured graph follows the schedule by itself. ``names`` has the name of
    each parameter by its ``id``.
    """

    def __init__(
        self, groups: list[Group], names: dict[int, str], optim: OptimConfig, total: int, device: torch.device
    ) -> None:
        self.groups = groups
        self._names = names
        self.total, self.angle = total, optim.cosine
        self._first = torch.tensor([group.lr for group in groups], device=device)
        self._rates = self._first.clone()
        entries: dict[str, list[dict[str, Any]]] = {"sgd": [], "muon": [], "adamw": []}
        for group, rate in zip(groups, self._rates, strict=True):
            entries[group.rule].append({"params": group.params, "lr": rate, "weight_decay": group.weight_decay})
        self._optimisers: dict[str, torch.optim.Optimizer] = {}
        if entries["sgd"]:
            sgd = torch.optim.SGD(entries["sgd"], momentum=optim.momentum, nesterov=optim.momentum > 0, fused=True)
            if optim.momentum:
                # Else torch's fused SGD fails on a parameter that gets its first gradient later than others.
                _start_momentum(sgd)
            self._optimisers["sgd"] = sgd
        if entries["muon"]:
            self._optimisers["muon"] = Muon(entries["muon"], optim.momentum)
        if entries["adamw"]:
            capturable = device.type == "cuda"
            self._optimisers["adamw"] = torch.optim.AdamW(entries["adamw"], fused=True, capturable=capturable)

    def zero(self) -> None:
        for group in self.groups:
            if not group.accumulate:
                for p in group.params:
                    p.grad = None

    def step(self, step: Tensor) -> None:
        """Clip, set the rates for ``step`` and update every parameter."""
        torch.mul(self._first, cosine(step, self.total, self.angle), out=self._rates)
        for group in self.groups:
            if group.clip is not None:
                nn.utils.clip_grad_norm_(group.params, group.clip, foreach=True)
        for optimiser in self._optimisers.values():
            optimiser.step()

    def state(self) -> dict[str, Tensor]:
        """The state of all optimisers, including accumulated gradients, as RULE.ENTRY.PARAMETER."""
        state = {
            f"{rule}.{entry}.{self._names[id(p)]}": value
            for rule, optimiser in self._optimisers.items()
            for p, entries in optimiser.state.items()
            for entry, value in entries.items()
        }
        accumulated = [(group.rule, p) for group in self.groups if group.accumulate for p in group.params]
        gradients = {f"{rule}.gradient.{self._names[id(p)]}": p.grad for rule, p in accumulated}
        return state | {key: gradient for key, gradient in gradients.items() if gradient is not None}

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Restore what :meth:`state` gave. Raises ValueError, and changes nothing, if it is that of other groups."""
        own: dict[tuple[str, str], nn.Parameter] = {
            (group.rule, self._names[id(p)]): p for group in self.groups for p in group.params
        }
        found = []
        for key, value in tensors.items():
            rule, entry, name = key.split(".", 2)
            p = own.get((rule, name))
            # AdamW's count of steps is a number; all else lies in memory as the parameter does, which fused updates
            # on a GPU require: files keep no strides.
            like = value if p is None or entry == "step" else p
            if p is None or value.shape != like.shape:
                raise ValueError(f"no parameter of shape {tuple(value.shape)} has the optimiser's state {key!r}")
            found.append((rule, entry, p, torch.empty_like(like, device=p.device).copy_(value)))
        # AdamW has no state of a parameter before its first gradient, and so may lack some.
        missing = [key for key in self.state() if ".momentum_buffer." in key and key not in tensors]
        if missing:
            raise ValueError(f"the optimiser's state has no {missing[0]!r}")
        for optimiser in self._optimisers.values():
            optimiser.state.clear()
        for rule, entry, p, value in found:
            if entry == "gradient":
                p.grad = value
            else:
                self._optimisers[rule].state[p][entry] = value


def _start_momentum(optimiser: torch.optim.Optimizer) -> None:
    for group in optimiser.param_groups:
        optimiser.state.update({p: {"momentum_buffer": torch.zeros_like(p)} for p in group["params"]})


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
        _start_momentum(self)

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
            updates = _orthogonal_each(ahead)

            lengths = torch._foreach_norm(weights)
            shares = torch._foreach_div(lengths, torch._foreach_clamp_min(torch._foreach_norm(updates), LEAST))
            torch._foreach_mul_(shares, -group["lr"])
            torch._foreach_mul_(updates, shares)
            torch._foreach_add_(weights, updates)
            torch._foreach_mul_(weights, torch._foreach_div(lengths, torch._foreach_norm(weights)))


def _orthogonal_each(tensors: Sequence[Tensor]) -> list[Tensor]:
    """:func:`orthogonal` of each tensor as a matrix of its rows, computed together for those of one shape.

    Columns are taken in the order of memory, so that channels-last weights need no copy; their order has no effect.
    """
    found: dict[int, Tensor] = {}
    for shape, strides in dict.fromkeys((t.shape, t.stride()) for t in tensors):
        alike = [i for i, t in enumerate(tensors) if (t.shape, t.stride()) == (shape, strides)]
        rows, columns = shape[0], shape[1:].numel()
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
