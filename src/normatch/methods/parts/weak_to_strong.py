"""Base of FixMatch, NorMatch and similar methods: pseudo-labels from weak views are the targets of strong views."""

import abc
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from normatch.errors import UserError
from normatch.methods.base import Batch, Method, Outcome, PseudoLabels, Settings, Task, ViewsWanted
from normatch.methods.parts.alignment import Alignment
from normatch.methods.parts.losses import labelled_loss, pseudo_loss, targets
from normatch.methods.parts.passes import Passes, embed
from normatch.nets import find_backbone
from normatch.nets.model import Model

__all__ = ["WeakToStrong", "WeakToStrongSettings", "Weighted"]


@dataclass(frozen=True)
class WeakToStrongSettings(Settings):
    """Settings common to methods that train strong views on pseudo-labels of weak ones."""

    needs: ClassVar[dict[str, str]] = {"alignment_batches": "alignment"}

    pseudo_label: Literal["soft", "onehot"] = "onehot"
    """The target of the strong view: the probabilities themselves, or one-hot at the largest."""
    alignment: bool = False
    """Distribution alignment of the pseudo-labels."""
    alignment_batches: int = 32
    """Number of recent batches over which alignment averages the distribution of classes."""
    passes: Passes = "joint"
    """All views in one pass through the backbone (joint, the paper), or the same with gradients of labelled and strong
    views only (shared)."""

    def check(self) -> None:
        if self.alignment_batches < 1:
            raise UserError(f"settings.alignment_batches is {self.alignment_batches}: give at least 1")
        if not self.alignment and self.alignment_batches != WeakToStrongSettings.alignment_batches:
            raise UserError(
                f"settings.alignment_batches is {self.alignment_batches}, but settings.alignment is off: "
                "turn it on, or leave the number out"
            )


class WeakToStrong(Method):
    """The parts of a ``forward`` that learns from one weak and one strong view of each unlabelled image."""

    Settings: ClassVar[type[Settings]] = WeakToStrongSettings
    views: ViewsWanted = ViewsWanted(labelled=("weak",), unlabelled=("weak", "strong"))

    def __init__(self, model: Model, task: Task, settings: WeakToStrongSettings) -> None:
        super().__init__(model, task, settings)
        if settings.passes == "shared" and not find_backbone(model.spec.backbone).partial:
            raise UserError(
                f"settings.passes is 'shared', which backbone {model.spec.backbone!r} does not have: choose 'joint'"
            )
        self.alignment = Alignment(task.classes, settings.alignment_batches) if settings.alignment else None

    def embed(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        (labelled,), (weak, strong) = batch.labelled, batch.unlabelled
        return embed(self.model, labelled, weak, strong, self.settings.passes)

    @torch.no_grad()
    def believe(self, z_weak: Tensor) -> Tensor:
        """p_d of the weak views (N, K), aligned where alignment is on."""
        p: Tensor = self.model.head(z_weak).float().softmax(1)
        if self.alignment is not None:
            p = self.alignment(p)
        return p

    def classify(self, z_labelled: Tensor, z_strong: Tensor) -> tuple[Tensor, Tensor]:
        """The head's logits of both, from one pass over all features."""
        logits: Tensor = self.model.head(torch.cat([z_labelled, z_strong]))
        labelled, strong = logits.split([len(z_labelled), len(z_strong)])
        return labelled, strong

    def losses(
        self, logits_labelled: Tensor, labels: Tensor, logits_strong: Tensor, p: Tensor, weight: Tensor
    ) -> dict[str, Tensor]:
        """L_x(θ_d) and L_u(θ_d)."""
        target = targets(p, self.settings.pseudo_label == "onehot")
        return {
            "labelled": labelled_loss(logits_labelled, labels),
            "unlabelled": pseudo_loss(logits_strong, target, weight),
        }


class Weighted(WeakToStrong):
    """L = L_x(θ_d) + L_u(θ_d); a subclass defines the weights of the pseudo-labels."""

    def forward(self, batch: Batch) -> Outcome:
        z_labelled, z_weak, z_strong = self.embed(batch)
        p = self.believe(z_weak)
        weight = self.weigh(p, batch)
        logits_labelled, logits_strong = self.classify(z_labelled, z_strong)
        losses = self.losses(logits_labelled, batch.labels, logits_strong, p, weight)
        return Outcome(losses, {}, PseudoLabels(p.argmax(1), weight, weight > 0, p.amax(1), None))

    @abc.abstractmethod
    def weigh(self, p: Tensor, batch: Batch) -> Tensor:
        """The weights (N,) of pseudo-labels in the loss, for the beliefs ``p`` (N, K); those above 0 are trusted."""
