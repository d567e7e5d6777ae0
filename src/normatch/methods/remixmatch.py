"""ReMixMatch: aligned guesses of labels for strong views, mixed, and the task of rotations (Berthelot et al. 2020)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from normatch.augment.rotate import quarter_turns
from normatch.methods.base import Settings, Task, ViewsWanted, methods
from normatch.methods.parts.mixing import Mixing, MixSettings
from normatch.methods.parts.pseudo_labels import Alignment, labelled_loss, pseudo_loss
from normatch.methods.parts.ramps import linear_ramp
from normatch.methods.parts.weak_to_strong import Pass
from normatch.nets.model import LinearHead, Model

__all__ = ["ReMixMatch", "ReMixMatchSettings"]


@dataclass(frozen=True)
class ReMixMatchSettings(MixSettings):
    """The settings of ReMixMatch."""

    alignment: bool = True
    """Distribution alignment of the guesses to the classes' shares among the labels, over 128 batches."""
    weight: float = 1.5
    """λ_u, the weight of the mixed unlabelled samples."""
    anchor_weight: float = 0.5
    """λ_û, the weight of the strong view that is not mixed."""
    rotation_weight: float = 0.5
    """λ_r, the weight of the rotations; 0 leaves them out."""
    ramp: float = 1 / 64
    """Share of the run over which λ_u and λ_û grow linearly."""

    def check(self) -> None:
        super().check()
        self.must_not_be_negative("weight", "anchor_weight", "rotation_weight")
        self.must_be_probability("ramp")


@methods.named("remixmatch")
class ReMixMatch(Mixing):
    """L = 1/B Σ H(y', p(x')) + λ_u · 1/N Σ w H(q', p(u')) + λ_û · 1/μB Σ w H(q, p(û)) + λ_r · 1/μB Σ H(r, p(r | ũ)).

    The guess q = sharpen(align(p), T) of the weak view is the target of weak and strong view (augmentation anchoring).
    Alignment multiplies p by the classes' shares among the labels over their shares in the last 128 batches of
    predictions. x' and the N = 2μB samples u' are mixed as in MixMatch, from strong views of labelled images and both
    views of unlabelled ones; û is the strong view as it is; ũ is another, turned by r quarter turns, which a linear
    head predicts. Feature vectors have no rotations: that loss is left out.

    The paper has 8 strong views of as many unlabelled images as labelled ones; here one view of μ times as many. Strong
    views are those of all methods (RandAugment, cutout), not CTAugment. w is 1 without consensus.
    """

    summary: ClassVar[str] = "aligned guesses for mixed strong views, and rotations"
    paper: ClassVar[str] = "Berthelot et al., ICLR 2020"
    Settings: ClassVar[type[Settings]] = ReMixMatchSettings
    views: ViewsWanted = ViewsWanted(labelled=("strong",), unlabelled=("weak", "strong", "rotated"))

    def __init__(self, model: Model, task: Task, settings: ReMixMatchSettings) -> None:
        super().__init__(model, task, settings)
        if settings.alignment:
            self.alignment = Alignment(task.classes, batches=128, target=task.prior)
        rotates = bool(settings.rotation_weight) and len(model.spec.shape) == 3
        self.rotation = LinearHead(model.backbone.features, 4) if rotates else None
        if not rotates:
            self.views = ViewsWanted(labelled=("strong",), unlabelled=("weak", "strong"))

    def losses(self, now: Pass) -> dict[str, Tensor]:
        weak, strong, *rotated = now.batch.unlabelled
        x, y = self.mix(now, (weak, strong))
        n = len(now.batch.labels)
        z = self.model.features(torch.cat([x, strong, *rotated]))
        logits: Tensor = self.model.head(z[: len(x) + len(strong)]).float()
        mixed, anchored = logits[n : len(x)], logits[len(x) :]
        grown = linear_ramp(now.batch.step, self.steps, self.settings.ramp)
        losses = {
            "labelled": F.cross_entropy(logits[:n], y[:n]),
            "unlabelled": self.settings.weight * grown * pseudo_loss(mixed, y[n:], torch.cat([now.weight, now.weight])),
            "anchored": self.settings.anchor_weight * grown * pseudo_loss(anchored, now.target, now.weight),
        }
        if self.rotation is not None:
            turned = self.rotation(z[len(logits) :])
            losses["rotation"] = self.settings.rotation_weight * labelled_loss(
                turned, quarter_turns(len(turned), turned.device)
            )
        return losses
