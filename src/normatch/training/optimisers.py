"""The optimisers of a method's parameter groups, with learning rates kept on the device."""

from typing import Any

import torch
from torch import Tensor, nn

from normatch.methods.parts.groups import Group, OptimConfig
from normatch.training.muon import Muon
from normatch.training.schedule import cosine

__all__ = ["Optimisers"]

GRADIENT = "gradient"
"""The entry of the state that is no optimiser's: an accumulated gradient."""

STEPS = "step"
"""The entry of AdamW's state that counts steps, and does not have the parameter's shape."""


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
        entries: list[dict[str, Any]] = [
            {"params": group.params, "lr": rate, "weight_decay": group.weight_decay}
            for group, rate in zip(groups, self._rates, strict=True)
        ]
        sgd, muon, adamw = (
            [entry for entry, group in zip(entries, groups, strict=True) if group.rule == rule]
            for rule in ("sgd", "muon", "adamw")
        )
        self._optimisers: dict[str, torch.optim.Optimizer] = {}
        if sgd:
            optimiser = torch.optim.SGD(sgd, momentum=optim.momentum, nesterov=optim.momentum > 0, fused=True)
            self._optimisers["sgd"] = optimiser
            if optim.momentum:
                # Else torch's fused SGD fails on a parameter that gets its first gradient later than others.
                optimiser.state.update(
                    {p: {"momentum_buffer": torch.zeros_like(p)} for entry in sgd for p in entry["params"]}
                )
        if muon:
            self._optimisers["muon"] = Muon(muon, optim.momentum)
        if adamw:
            capturable = device.type == "cuda"
            self._optimisers["adamw"] = torch.optim.AdamW(adamw, fused=True, capturable=capturable)

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
        entries = [
            (rule, entry, p, value)
            for rule, optimiser in self._optimisers.items()
            for p, state in optimiser.state.items()
            for entry, value in state.items()
        ]
        entries += [
            (group.rule, GRADIENT, p, p.grad)
            for group in self.groups
            for p in group.params
            if group.accumulate and p.grad is not None
        ]
        return {f"{rule}.{entry}.{self._names[id(p)]}": value for rule, entry, p, value in entries}

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Restore what :meth:`state` gave. Raises ValueError, and changes nothing, if it is that of other groups."""
        found = self._assign(tensors)
        for optimiser in self._optimisers.values():
            optimiser.state.clear()
        for rule, entry, p, value in found:
            if entry == GRADIENT:
                p.grad = value
            else:
                self._optimisers[rule].state[p][entry] = value

    def _assign(self, tensors: dict[str, Tensor]) -> list[tuple[str, str, nn.Parameter, Tensor]]:
        """The tensors of a state with the parameter of each, on its device."""
        own = {f"{group.rule}.{self._names[id(p)]}": p for group in self.groups for p in group.params}
        found = []
        for key, value in tensors.items():
            rule, _, rest = key.partition(".")
            entry, _, name = rest.partition(".")
            p = own.get(f"{rule}.{name}")
            if p is None:
                raise ValueError(f"no parameter has the optimiser's state {key!r}")
            if entry != STEPS and value.shape != p.shape:
                raise ValueError(f"{key!r} has shape {tuple(value.shape)}, its parameter {tuple(p.shape)}")
            # As the parameter lies in memory, which fused updates on a GPU require; files keep no strides.
            found.append(
                (rule, entry, p, torch.empty_like(value if entry == STEPS else p, device=p.device).copy_(value))
            )
        for key in self.state().keys() - tensors.keys():
            # Others may be missing: AdamW has no state of a parameter before its first gradient.
            if key.startswith(("sgd.momentum_buffer.", "muon.momentum_buffer.")):
                raise ValueError(f"the optimiser's state has no {key!r}")
        return found
