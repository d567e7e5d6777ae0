"""The optimisers of a method's parameter groups, with learning rates kept on the device."""

from typing import Any

import torch
from torch import Tensor, nn

from normatch.engine.schedule import cosine
from normatch.methods.parts.groups import Group, OptimConfig

__all__ = ["Optimisers"]


class Optimisers:
    """SGD and AdamW for their groups of parameters, with one schedule for all.

    Learning rates are 0-d tensors, so that a captured graph follows the schedule by itself.
    """

    def __init__(self, groups: list[Group], optim: OptimConfig, total: int, device: torch.device) -> None:
        self.groups = groups
        self.total, self.angle = total, optim.cosine
        self._first = torch.tensor([group.lr for group in groups], device=device)
        self._rates = self._first.clone()
        entries: list[dict[str, Any]] = [
            {"params": group.params, "lr": rate, "weight_decay": group.weight_decay}
            for group, rate in zip(groups, self._rates, strict=True)
        ]
        sgd, adamw = ([e for e, g in zip(entries, groups, strict=True) if g.rule == rule] for rule in ("sgd", "adamw"))
        self._optimisers: list[torch.optim.Optimizer] = []
        if sgd:
            optimiser = torch.optim.SGD(sgd, momentum=optim.momentum, nesterov=optim.momentum > 0, fused=True)
            self._optimisers.append(optimiser)
            if optim.momentum:
                # Else torch's fused SGD fails on a parameter that gets its first gradient later than others.
                optimiser.state.update(
                    {p: {"momentum_buffer": torch.zeros_like(p)} for entry in sgd for p in entry["params"]}
                )
        if adamw:
            capturable = device.type == "cuda"
            self._optimisers.append(torch.optim.AdamW(adamw, fused=True, capturable=capturable))

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
        for optimiser in self._optimisers:
            optimiser.step()

    def state(self) -> dict[str, Tensor]:
        """The state of all optimisers as named tensors, including accumulated gradients."""
        tensors = {
            f"{i}.{j}.{name}": value
            for i, optimiser in enumerate(self._optimisers)
            for j, entry in optimiser.state_dict()["state"].items()
            for name, value in entry.items()
        }
        for i, p in self._accumulated():
            if p.grad is not None:
                tensors[f"gradient.{i}"] = p.grad
        return tensors

    def load(self, tensors: dict[str, Tensor]) -> None:
        for i, optimiser in enumerate(self._optimisers):
            state: dict[int, dict[str, Tensor]] = {}
            for key, value in tensors.items():
                head, *rest = key.split(".", 2)
                if head == str(i):
                    state.setdefault(int(rest[0]), {})[rest[1]] = value
            # load_state_dict replaces the learning rates by copies: restore the tensors that the schedule updates.
            rates = [group["lr"] for group in optimiser.param_groups]
            optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
            for group, rate in zip(optimiser.param_groups, rates, strict=True):
                group["lr"] = rate
            for p, entry in optimiser.state.items():
                entry |= {name: _laid_out_as(p, value) for name, value in entry.items()}
        for i, p in self._accumulated():
            if f"gradient.{i}" in tensors:
                p.grad = _laid_out_as(p, tensors[f"gradient.{i}"].to(p.device))

    def _accumulated(self) -> list[tuple[int, nn.Parameter]]:
        return list(enumerate(p for group in self.groups if group.accumulate for p in group.params))


def _laid_out_as(p: Tensor, value: Tensor) -> Tensor:
    """``value`` with the strides of ``p`` if it has its shape, as fused updates on a GPU require."""
    return torch.empty_like(p).copy_(value) if value.shape == p.shape else value
