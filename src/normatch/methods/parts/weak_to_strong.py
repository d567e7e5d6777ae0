"""Base of FixMatch, NorMatch and similar methods: pseudo-labels from weak views are the targets of strong views."""

import abc
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from normatch.errors import UserError
from normatch.methods.base import Batch, Method, Outcome, PseudoLabels, Settings, Task, ViewsWanted
from normatch.methods.parts.pseudo_labels import Alignment, labelled_loss, pseudo_loss, targets
from normatch.nets import find_backbone
from normatch.nets.model import Model

__all__ = ["Passes", "WeakToStrong", "WeakToStrongSettings", "Weighted"]

Passes = Literal["joint", "shared"]


@dataclass(frozen=True)
class WeakToStrongSettings(Settings):
    """Settings common to methods that train strong views on pseudo-labels of weak ones."""

    pseudo_label: Literal["soft", "onehot"] = "onehot"
    """The target of the strong view: the probabilities themselves, or one-hot at the largest."""
    alignment: bool = False
    """Distribution alignment of the pseudo-labels."""
    passes: Passes = "joint"
    """All views in one pass through the backbone (joint, the paper), or the same with gradients of labelled and strong
    views only (shared)."""


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
        self.alignment = Alignment(task.classes) if settings.alignment else None

    def embed(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Features of the labelled, weak and strong views, from one pass: batch normalisation sees them together.

        With passes ``shared`` the backward pass covers labelled and strong views only: weak ones enter no loss and
        would get a gradient only through the batch statistics.
        """
        (labelled,), (weak, strong) = batch.labelled, batch.unlabelled
        sizes = [len(labelled), len(strong), len(weak)]
        shared = self.settings.passes == "shared"
        learning = sizes[0] + sizes[1] if shared else None
        z = self.model.features(torch.cat([labelled, strong, weak]), learning)
        z_labelled, z_strong, z_weak = z.split(sizes)
        return z_labelled, z_weak.detach() if shared else z_weak, z_strong

    @torch.no_grad()
    def predict(self, z_weak: Tensor) -> Tensor:
        """p_d of the weak views (N, K), aligned where alignment is on."""
        p: Tensor = self.model.head(z_weak).float().softmax(1)
        return p if self.alignment is None else self.alignment(p)

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
        p = self.predict(z_weak)
        weight = self.weigh(p, batch)
        logits_labelled, logits_strong = self.classify(z_labelled, z_strong)
        losses = self.losses(logits_labelled, batch.labels, logits_strong, p, weight)
        return Outcome(losses, {}, PseudoLabels(p.argmax(1), weight, weight > 0, p.amax(1), None))

    @abc.abstractmethod
    def weigh(self, p: Tensor, batch: Batch) -> Tensor:
        """The weights (N,) of pseudo-labels in the loss, for probabilities ``p`` (N, K); those above 0 are trusted."""
