"""FlexMatch: thresholds that are lower for classes which are learnt less (Zhang et al. 2021)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from normatch.methods.base import Batch, Settings, Task, methods
from normatch.methods.fixmatch import FixMatchSettings
from normatch.methods.parts.memory import remember
from normatch.methods.parts.pseudo_labels import threshold_weights
from normatch.methods.parts.weak_to_strong import WeakToStrong
from normatch.nets.model import Model

__all__ = ["FlexMatch", "FlexMatchSettings"]


@dataclass(frozen=True)
class FlexMatchSettings(FixMatchSettings):
    """The settings of FlexMatch."""

    threshold: float = 0.95
    """τ, the threshold of the class that is learnt best."""


@methods.named("flexmatch")
class FlexMatch(WeakToStrong):
    """FixMatch with one threshold per class (curriculum pseudo-labels).

    L = L_x + 1/μB Σ 1[max p ≥ T(ŷ)] · H(ŷ, p(strong)), T(c) = τ · β(c) / (2 − β(c)).

    β(c) = σ(c) / max(max_c σ(c), n), where σ(c) counts the unlabelled images whose last prediction of at least τ is c,
    and n those that never had one. While most have none all thresholds are low, and grow with the counts (eq. 11); the
    convex map x / (2 − x) is the paper's default. The counts are those before the batch.
    """

    summary: ClassVar[str] = "thresholds per class, lower where less is learnt"
    paper: ClassVar[str] = "Zhang et al., NeurIPS 2021"
    Settings: ClassVar[type[Settings]] = FlexMatchSettings

    label: Tensor
    """(Task.unlabelled,) the class of the last confident prediction; −1 if there was none."""
    counts: Tensor
    """(1 + K,) how often each is among them, first −1: kept, since to count millions takes longer than a step."""

    def __init__(self, model: Model, task: Task, settings: FlexMatchSettings) -> None:
        super().__init__(model, task, settings)
        self.register_buffer("label", torch.full((task.unlabelled,), -1))
        self.register_buffer("counts", torch.tensor([task.unlabelled] + [0] * task.classes))

    @torch.no_grad()
    def weigh(self, p: Tensor, batch: Batch) -> Tensor:
        confidence, label = p.max(1)
        weight = threshold_weights(p, self.thresholds()[label])
        confident = confidence >= self.settings.threshold
        at, before = batch.positions, self.label[batch.positions]
        remember(self.label, at, torch.where(confident, label, before))
        once = (~(at[:, None] == at).tril(-1).any(1)).long()  # an image may occur several times in a batch
        self.counts.index_add_(0, self.label[at] + 1, once).index_add_(0, before + 1, once, alpha=-1)
        return weight

    def thresholds(self) -> Tensor:
        """T (K,)."""
        beta = self.counts[1:] / self.counts.amax()
        thresholds: Tensor = self.settings.threshold * beta / (2 - beta)
        return thresholds
