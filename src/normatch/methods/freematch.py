"""FreeMatch: thresholds that follow the model's own confidence, and a loss for fair classes (Wang et al. 2023)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from normatch.methods.base import Batch, Settings, Task, methods
from normatch.methods.parts.pseudo_labels import targets, threshold_weights
from normatch.methods.parts.weak_to_strong import Pass, WeakToStrong, WeakToStrongSettings
from normatch.nets.model import Model

__all__ = ["FreeMatch", "FreeMatchSettings"]


@dataclass(frozen=True)
class FreeMatchSettings(WeakToStrongSettings):
    """The settings of FreeMatch."""

    memory: float = 0.999
    """λ, the share of the past in the running averages."""
    fairness: float = 0.05
    """w_f, the weight of the fairness loss; 0 turns it off."""

    def check(self) -> None:
        super().check()
        self.must_be_probability("memory")
        self.must_not_be_negative("fairness")


@methods.named("freematch")
class FreeMatch(WeakToStrong):
    """FixMatch with thresholds that are running averages of the confidence: one for all, scaled for each class.

    L = L_x + 1/μB Σ 1[max p ≥ τ(ŷ)] · H(ŷ, p(strong)) + w_f L_f, τ(c) = τ p̃(c) / max p̃ (eq. 8).

    τ, p̃ and h̃ are running averages over the unlabelled batches, including this one, of max p, of p and of the shares
    of the classes ŷ; they begin at 1/K. The fairness loss is

    L_f = Σ_c N(p̃ / h̃)_c log N(p̄ / h̄)_c (eq. 11 to 13),

    where N divides by the sum, and p̄ and h̄ are the mean and the shares of the named classes of the strong predictions
    whose pseudo-labels reach the threshold. A class that none of these names counts as 0. w_f is the paper's for
    CIFAR-10 with 40 labels or more; its published code has 0.001. The paper's limits of τ on SVHN are left out.
    """

    summary: ClassVar[str] = "thresholds that follow the model's confidence; fair classes"
    paper: ClassVar[str] = "Wang et al., ICLR 2023"
    Settings: ClassVar[type[Settings]] = FreeMatchSettings

    confidence: Tensor
    """() τ."""
    average: Tensor
    """(K,) p̃."""
    shares: Tensor
    """(K,) h̃."""

    def __init__(self, model: Model, task: Task, settings: FreeMatchSettings) -> None:
        super().__init__(model, task, settings)
        self.register_buffer("confidence", torch.tensor(1 / task.classes))
        self.register_buffer("average", torch.full((task.classes,), 1 / task.classes))
        self.register_buffer("shares", torch.full((task.classes,), 1 / task.classes))

    @torch.no_grad()
    def weigh(self, p: Tensor, batch: Batch) -> Tensor:
        new, (confidence, label) = 1 - self.settings.memory, p.max(1)
        self.confidence.lerp_(confidence.mean(), new)
        self.average.lerp_(p.mean(0), new)
        self.shares.lerp_(targets(p, one_hot=True).mean(0), new)
        threshold = self.confidence * self.average / self.average.amax()
        return threshold_weights(p, threshold[label])

    def extra_losses(self, now: Pass) -> dict[str, Tensor]:
        if not self.settings.fairness:
            return {}
        q, used = now.logits_strong[0].float().softmax(1), (now.weight > 0).float()[:, None]
        mean, named = (used * q).sum(0), (used * targets(q.detach(), one_hot=True)).sum(0)
        ours = torch.where(named > 0, mean / named.clamp_min(1), 0.0)
        wanted = self.average / self.shares.clamp_min(1e-12)
        inner = wanted / wanted.sum() * torch.log(ours / ours.sum().clamp_min(1e-12) + 1e-12)
        return {"fairness": self.settings.fairness * torch.where(used.any(), inner.sum(), 0.0)}
