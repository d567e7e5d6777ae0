"""SoftMatch: weights that fall smoothly below the average confidence (Chen et al. 2023)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from normatch.methods.base import Batch, Settings, Task, methods
from normatch.methods.parts.pseudo_labels import AdaptiveWeights, aligned
from normatch.methods.parts.weak_to_strong import WeakToStrong, WeakToStrongSettings
from normatch.nets.model import Model

__all__ = ["SoftMatch", "SoftMatchSettings"]


@dataclass(frozen=True)
class SoftMatchSettings(WeakToStrongSettings):
    """The settings of SoftMatch."""

    uniform: bool = True
    """Uniform alignment: weights from probabilities aligned to equally frequent classes; pseudo-labels are not."""
    n_sigma: float = 1.0
    """n, by which the standard deviation is divided: 1 as in the paper's equation; its published code has 2."""

    def check(self) -> None:
        super().check()
        self.must_be_positive("n_sigma")


@methods.named("softmatch")
class SoftMatch(WeakToStrong):
    """Every pseudo-label counts, the less the further its confidence is below the average.

    L = L_x + 1/μB Σ w · H(ŷ, p(strong)), w = exp(−min(max p̃ − μ, 0)² / (2 (σ/n)²)).

    p̃ is p after uniform alignment, p / p̄ renormalised; the pseudo-label is p's. μ and σ² are running averages of the
    mean and the unbiased variance of max p in a batch, before alignment, and p̄ that of p; 0.999 of the past is kept.
    They begin at 1/K, 1 and 1/K. The published code averages the confidence after alignment.
    """

    summary: ClassVar[str] = "weights that fall smoothly below the average confidence"
    paper: ClassVar[str] = "Chen et al., ICLR 2023"
    Settings: ClassVar[type[Settings]] = SoftMatchSettings

    average: Tensor
    """(K,) p̄."""

    def __init__(self, model: Model, task: Task, settings: SoftMatchSettings) -> None:
        super().__init__(model, task, settings)
        self.register_buffer("average", torch.full((task.classes,), 1 / task.classes))
        self.adaptive = AdaptiveWeights(task.classes, settings.n_sigma, correction=1)

    @torch.no_grad()
    def weigh(self, p: Tensor, batch: Batch) -> Tensor:
        confidence = p.amax(1)
        if self.settings.uniform:
            self.average.lerp_(p.mean(0), AdaptiveWeights.RATE)
            p = aligned(p, self.average)
        weight: Tensor = self.adaptive(confidence, p.amax(1))
        return weight
