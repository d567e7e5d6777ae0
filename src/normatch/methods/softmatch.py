"""SoftMatch: weights that fall smoothly below the average confidence (Chen et al. 2023)."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from normatch.methods.base import Batch, Settings, Task, methods
from normatch.methods.parts.pseudo_labels import AdaptiveWeights, RunningAlignment
from normatch.methods.parts.weak_to_strong import WeakToStrong, WeakToStrongSettings
from normatch.nets.model import Model

__all__ = ["SoftMatch", "SoftMatchSettings"]


@dataclass(frozen=True)
class SoftMatchSettings(WeakToStrongSettings):
    """The settings of SoftMatch."""

    uniform: bool = True
    """Uniform alignment: weights from probabilities aligned to equally frequent classes; pseudo-labels are not."""


@methods.named("softmatch")
class SoftMatch(WeakToStrong):
    """Every pseudo-label counts, the less the further its confidence is below the average.

    L = L_x + 1/μB Σ w · H(ŷ, p(strong)), w = exp(−min(c − μ, 0)² / (2 (σ/2)²)).

    c is the largest probability after uniform alignment, p / p̄ renormalised (p itself is the pseudo-label), μ and σ²
    are running averages of the mean and the variance of c in a batch, and p̄ that of p; 0.999 of the past is kept. σ/2,
    where the paper's equation has σ, is what its published code computes and its results were measured with.
    """

    summary: ClassVar[str] = "weights that fall smoothly below the average confidence"
    paper: ClassVar[str] = "Chen et al., ICLR 2023"
    Settings: ClassVar[type[Settings]] = SoftMatchSettings

    def __init__(self, model: Model, task: Task, settings: SoftMatchSettings) -> None:
        super().__init__(model, task, settings)
        self.uniform = RunningAlignment(task.classes, 1 - AdaptiveWeights.RATE) if settings.uniform else None
        self.adaptive = AdaptiveWeights(task.classes)

    def weigh(self, p: Tensor, batch: Batch) -> Tensor:
        aligned = p if self.uniform is None else self.uniform(p)
        weight: Tensor = self.adaptive(aligned.amax(1))
        return weight
