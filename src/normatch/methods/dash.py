"""Dash: pseudo-labels whose loss is below a threshold that falls during the run (Xu et al. 2021)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from normatch.errors import UserError
from normatch.methods.base import Batch, Settings, Task, methods
from normatch.methods.parts.pseudo_labels import targets
from normatch.methods.parts.weak_to_strong import Pass, WeakToStrong, WeakToStrongSettings
from normatch.nets.model import Model

__all__ = ["Dash", "DashSettings"]


@dataclass(frozen=True)
class DashSettings(WeakToStrongSettings):
    """The settings of Dash."""

    pseudo_label: Literal["soft", "onehot", "sharpened"] = "sharpened"
    """The target of the strong views until the threshold is at its least; from then on it is one-hot."""
    warm_up: float = 0.01
    """Share of the run that trains on labels alone and measures ρ̂."""
    factor: float = 1.0001
    """C, the first threshold as a multiple of ρ̂."""
    decay: float = 1.27
    """γ, by which the threshold is divided in turn."""
    period: float = 9 / 1024
    """Share of the run between two divisions: 9 epochs of the paper's 1024."""
    least: float = 0.05
    """The least threshold: a loss of 0.05 is a probability of 0.951."""

    def check(self) -> None:
        super().check()
        self.must_be_positive("factor", "period", "least")
        if self.decay < 1:
            raise UserError(f"settings.decay is {self.decay}: give 1 or more, by which the threshold is divided")
        if not 0 <= self.warm_up < 1:
            raise UserError(f"settings.warm_up is {self.warm_up}: give a share of the run, from 0 to below 1")


@methods.named("dash")
class Dash(WeakToStrong):
    """FixMatch with a dynamic threshold on the loss of the weak view in place of a fixed one on its confidence.

    L = L_x + 1/μB Σ 1[H(ŷ, p) ≤ ρ_t] · H(q, p(strong)), ρ_t = max(C γ^−t ρ̂, 0.05) (eq. 8).

    The target q is p, sharpened by T = 0.5, and one-hot when ρ_t is at 0.05.
    H(ŷ, p) = −log max p, so the least confidence grows from about that of the labelled images to 0.951. In a warm-up
    only L_x is trained. ρ̂ is the loss of labelled images at its end: here the running average over the batches of the
    warm-up (a tenth is new), where the paper passes over all labelled images. t counts the divisions, one in 9 of 1024
    epochs; they and the warm-up are shares of the run, so that short runs have them too. The published code measures ρ̂
    on unlabelled images, which it trains on in the warm-up too, and averages over those that count.
    """

    summary: ClassVar[str] = "pseudo-labels whose loss is below a falling threshold"
    paper: ClassVar[str] = "Xu et al., ICML 2021"
    Settings: ClassVar[type[Settings]] = DashSettings

    RATE = 0.1
    """Share of a new batch in ρ̂."""

    reference: Tensor
    """() ρ̂."""
    start: Tensor
    """() the first step after the warm-up, which has one step at least."""

    def __init__(self, model: Model, task: Task, settings: DashSettings) -> None:
        super().__init__(model, task, settings)
        self.register_buffer("reference", torch.zeros(()))
        self.register_buffer("start", torch.tensor(self.first), persistent=False)

    @property
    def first(self) -> int:
        """The first step after the warm-up."""
        steps: int = round(self.settings.warm_up * self.task.steps)
        return max(1, steps)

    @property
    def last_start(self) -> int:
        return max(super().last_start, self.first)

    def threshold(self, step: Tensor) -> Tensor:
        """ρ_t ()."""
        settings = self.settings
        divisions = ((step - self.start) / (settings.period * self.steps)).floor()
        threshold: Tensor = settings.factor * self.reference * settings.decay**-divisions
        return threshold.clamp_min(settings.least)

    @torch.no_grad()
    def weigh(self, p: Tensor, batch: Batch) -> Tensor:
        loss = -p.amax(1).clamp_min(torch.finfo(p.dtype).tiny).log()
        return ((loss <= self.threshold(batch.step)) & (batch.step >= self.start)).to(p.dtype)

    def target(self, p: Tensor, batch: Batch) -> Tensor:
        decided = self.threshold(batch.step) <= self.settings.least
        return torch.where(decided, targets(p, one_hot=True), super().target(p, batch))

    def losses(self, now: Pass) -> dict[str, Tensor]:
        losses = super().losses(now)
        loss, step = losses["labelled"].detach(), now.batch.step
        moved = torch.where(step == 0, loss, torch.lerp(self.reference, loss, self.RATE))
        self.reference.copy_(torch.where(step < self.start, moved, self.reference))
        return losses
