"""Adsh: for each class the threshold that passes the same share of its pseudo-labels (Guo & Li 2022)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from normatch.methods.base import Batch, Embedding, Settings, Task, methods
from normatch.methods.fixmatch import FixMatchSettings
from normatch.methods.parts.memory import remember
from normatch.methods.parts.pseudo_labels import threshold_weights
from normatch.methods.parts.weak_to_strong import WeakToStrong
from normatch.nets.model import Model

__all__ = ["Adsh", "AdshSettings"]


@dataclass(frozen=True)
class AdshSettings(FixMatchSettings):
    """The settings of Adsh."""

    threshold: float = 0.95
    """τ_1, the threshold of the class with the most labels."""


@methods.named("adsh")
class Adsh(WeakToStrong):
    """FixMatch for classes of unequal size: thresholds from the order statistics of each class.

    L = L_x + 1/μB Σ 1[max p ≥ τ_ŷ] · H(ŷ, p(strong)).

    Let C_k be the confidences of the images that are predicted as class k, in descending order. The most frequent class
    keeps τ_1, which passes a share ρ of C_1; every other class gets τ_k = C_k[ρ |C_k|], which passes the same share of
    its own, and at least one. Once an epoch they are computed from the last prediction for each unlabelled image's weak
    view; the paper predicts all images anew for it. With equally many labels the first class counts as the most
    frequent. A class that no image was predicted as keeps its threshold. The published code also lowers to τ_1 every
    threshold above it.
    """

    summary: ClassVar[str] = "thresholds that pass the same share of each class"
    paper: ClassVar[str] = "Guo & Li, ICML 2022"
    Settings: ClassVar[type[Settings]] = AdshSettings

    confidence: Tensor
    """(Task.unlabelled,) of the last prediction for each unlabelled image."""
    label: Tensor
    """(Task.unlabelled,) its class; −1 before the first."""
    thresholds: Tensor
    """(K,)."""

    def __init__(self, model: Model, task: Task, settings: AdshSettings) -> None:
        super().__init__(model, task, settings)
        self.register_buffer("confidence", torch.zeros(task.unlabelled))
        self.register_buffer("label", torch.full((task.unlabelled,), -1))
        self.register_buffer("thresholds", torch.full((task.classes,), settings.threshold))

    def begin_epoch(self, epoch: int, embed: Callable[[], Embedding]) -> None:
        head, first = self.task.prior.index(max(self.task.prior)), self.settings.threshold
        # On the host, once for all classes: a selection per class would wait for the device each time.
        confidence, label = self.confidence.cpu(), self.label.cpu()
        of_class = [confidence[label == k].sort(descending=True).values for k in range(self.task.classes)]
        if not len(of_class[head]):
            return
        share = (of_class[head] >= first).float().mean().item()
        found = self.thresholds.cpu()
        for k, ordered in enumerate(of_class):
            if k != head and len(ordered):
                found[k] = ordered[max(int(share * len(ordered)) - 1, 0)]
        self.thresholds.copy_(found)

    @torch.no_grad()
    def weigh(self, p: Tensor, batch: Batch) -> Tensor:
        confidence, label = p.max(1)
        remember(self.confidence, batch.positions, confidence)
        remember(self.label, batch.positions, label)
        return threshold_weights(p, self.thresholds[label])
