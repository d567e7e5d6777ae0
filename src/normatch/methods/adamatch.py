"""AdaMatch: a threshold relative to labelled images, and alignment to their predictions (Berthelot et al. 2022)."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from normatch.errors import UserError
from normatch.methods.base import Batch, Outcome, Settings, Task, ViewsWanted, methods
from normatch.methods.parts.norm import untracked_logits
from normatch.methods.parts.pseudo_labels import Alignment, labelled_loss, threshold_weights
from normatch.methods.parts.ramps import linear_ramp
from normatch.methods.parts.weak_to_strong import Features, Pass, WeakToStrong, WeakToStrongSettings
from normatch.nets.model import Model

__all__ = ["AdaMatch", "AdaMatchSettings"]


@dataclass(frozen=True)
class AdaMatchSettings(WeakToStrongSettings):
    """The settings of AdaMatch."""

    threshold: float = 0.9
    """τ, the threshold as a share of the mean confidence in weak labelled views."""
    memory: float = 0.999
    """Share of the past in p̄_x, the running average of the alignment."""
    ramp: float = 0.5
    """Share of the run over which the unlabelled loss grows."""

    def check(self) -> None:
        super().check()
        self.must_be_probability("threshold", "memory", "ramp")
        if self.alignment:
            raise UserError("settings.alignment is on, but AdaMatch aligns to labelled images already: leave it out")


@methods.named("adamatch")
class AdaMatch(WeakToStrong):
    """Semi-supervised AdaMatch: all that FixMatch fixes is measured on the labelled images instead.

    L = ½ L_x(weak) + ½ L_x(strong) + μ(t) / μB Σ 1[max p̃ ≥ τ c] · H(ŷ, p(strong)), ŷ = argmax p̃.

    - Random logit interpolation: labelled logits are Z = λ Z' + (1 − λ) Z'' with λ ~ U(0, 1) for each logit; Z' is from
      the pass with all images, Z'' from one of the labelled images alone, whose batch statistics are not tracked.
    - Distribution alignment: p̃ ∝ p · p̄_x / p̄_u, with p̄_x a running average of the predictions for weak labelled views,
      by Z, and p̄_u the mean prediction for unlabelled images in the last 128 batches, as in the published code.
    - Relative threshold: c is the mean of max p over the weak views of the labelled batch, by Z.
    - μ(t) = ½ − ½ cos(min(π, 2πt / T)) grows from 0 to 1 over the first half of the run.

    Labelled images have a strong view too.
    """

    summary: ClassVar[str] = "threshold and alignment relative to labelled images"
    paper: ClassVar[str] = "Berthelot et al., ICLR 2022"
    Settings: ClassVar[type[Settings]] = AdaMatchSettings
    views: ViewsWanted = ViewsWanted(labelled=("weak", "strong"), unlabelled=("weak", "strong"))

    confidence: Tensor
    """() c of this step."""
    shares: Tensor
    """(K,) p̄_x."""

    def __init__(self, model: Model, task: Task, settings: AdaMatchSettings) -> None:
        super().__init__(model, task, settings)
        self.relative = Alignment(task.classes, batches=128)
        self.register_buffer("confidence", torch.zeros(()))
        self.register_buffer("shares", torch.full((task.classes,), 1 / task.classes))

    def forward(self, batch: Batch) -> Outcome:
        """The template's, with both views of the labelled images in one: the weak ones first."""
        labels, positions = batch.labels.repeat(2), batch.labelled_positions.repeat(2)
        both = batch._replace(labelled=(torch.cat(batch.labelled),), labels=labels, labelled_positions=positions)
        return super().forward(both)

    def embed(self, batch: Batch) -> Features:
        alone = untracked_logits(self.model, batch.labelled[0]).float()
        return super().embed(batch)._replace(mixing=(alone, torch.rand_like(alone)))

    def interpolated(self, z: Features, together: Tensor) -> Tensor:
        """Z (2B, K) of Z' (2B, K)."""
        alone, share = z.mixing
        return torch.lerp(alone, together.float(), share)

    @torch.no_grad()
    def predict(self, z: Features, batch: Batch) -> Tensor:
        weak, _ = self.interpolated(z, self.model.head(z.labelled)).softmax(1).chunk(2)
        self.confidence.copy_(weak.amax(1).mean())
        self.shares.lerp_(weak.mean(0), 1 - self.settings.memory)
        p: Tensor = self.relative(super().predict(z, batch), self.shares)
        return p

    def weigh(self, p: Tensor, batch: Batch) -> Tensor:
        return threshold_weights(p, self.settings.threshold * self.confidence)

    def losses(self, now: Pass) -> dict[str, Tensor]:
        grown = linear_ramp(now.batch.step, self.steps, self.settings.ramp)
        weight = 0.5 - 0.5 * torch.cos(math.pi * grown)
        return {
            "labelled": labelled_loss(self.interpolated(now.z, now.logits_labelled), now.batch.labels),
            "unlabelled": weight * super().losses(now)["unlabelled"],
        }
