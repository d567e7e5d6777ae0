"""The template of methods whose pseudo-labels come from a graph of all images, made anew before each epoch."""

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from normatch.errors import UserError
from normatch.methods.base import Batch, Embedding, Settings, Task, ViewsWanted
from normatch.methods.parts.graph import Floats, row_shares
from normatch.methods.parts.pseudo_labels import pseudo_loss
from normatch.methods.parts.weak_to_strong import Features, Pass, WeakToStrong, WeakToStrongSettings
from normatch.nets.model import Model

__all__ = ["GraphLabels", "GraphLabelsSettings", "certainty"]


@dataclass(frozen=True)
class GraphLabelsSettings(WeakToStrongSettings):
    """Settings common to methods whose pseudo-labels come from a graph."""

    neighbours: int = 50
    """k, the nearest neighbours of each image in the graph."""
    alpha: float = 0.99
    """α, the share of a label that is passed on to neighbours."""
    warm_up: int = 1
    """Epochs on the labelled images alone, before the first graph."""

    def check(self) -> None:
        super().check()
        self.must_be_positive("neighbours")
        self.must_not_be_negative("warm_up")
        if not 0 <= self.alpha < 1:
            raise UserError(f"settings.alpha is {self.alpha}: give a number from 0 to below 1")


class GraphLabels(WeakToStrong):
    """L = 1/B Σ ζ_y · H(y, p) + 1/μB Σ ω ζ_ŷ · H(ŷ, p), on weak views.

    Before each epoch :meth:`spread` gives all images probabilities by a graph of the teacher's features: ŷ is the most
    probable class, ω (:meth:`weights`) says how certain it is, and ζ_k is the inverse of the number of images labelled
    or pseudo-labelled k. Until the first graph all ω are 0, so that labels teach alone.
    """

    Settings: ClassVar[type[Settings]] = GraphLabelsSettings
    views: ViewsWanted = ViewsWanted(unlabelled=("weak",))

    spread_labels: Tensor
    """(Task.unlabelled, K) the probabilities that the graph gives each image."""
    certainty: Tensor
    """(Task.unlabelled,) the weight of each pseudo-label."""
    balance: Tensor
    """(K,) the weight of each class in the losses, 1 on average over the images."""

    def __init__(self, model: Model, task: Task, settings: GraphLabelsSettings) -> None:
        super().__init__(model, task, settings)
        n, classes = task.unlabelled, task.classes
        self.register_buffer("spread_labels", torch.full((n, classes), 1 / classes))
        self.register_buffer("certainty", torch.zeros(n))
        self.register_buffer("balance", torch.ones(classes))

    @property
    def last_start(self) -> int:
        return max(super().last_start, int(self.settings.warm_up) * self.task.epoch)

    @abc.abstractmethod
    def spread(self, z: Tensor, sources: Floats) -> Floats:
        """Scores ≥ 0 (N, K) of the images with features ``z`` (N, D); ``sources`` (N, K) are their labels, one-hot, and
        0 for unlabelled images. Rows need not sum to 1; one of zeros says nothing."""

    def weights(self, p: Floats) -> Floats:
        """The weights (N,) of pseudo-labels with these probabilities (N, K)."""
        return certainty(p)

    def begin_epoch(self, epoch: int, embed: Callable[[], Embedding]) -> None:
        if epoch < self.settings.warm_up:
            return
        found = embed()
        labels, classes = found.labels.cpu().numpy(), self.task.classes
        sources = np.zeros((len(labels) + len(found.unlabelled), classes), dtype=np.float32)
        sources[np.arange(len(labels)), labels] = 1
        scores = self.spread(torch.cat([found.labelled, found.unlabelled]), sources)[len(labels) :]
        p = row_shares(scores)
        p[~p.any(1)] = 1 / classes
        counts = np.bincount(np.concatenate([labels, p.argmax(1)]), minlength=classes)
        balance = counts.sum() / (classes * np.maximum(counts, 1))
        new = (self.spread_labels, p), (self.certainty, self.weights(p)), (self.balance, balance)
        for buffer, values in new:
            buffer.copy_(torch.from_numpy(values))

    def predict(self, z: Features, batch: Batch) -> Tensor:
        p = self.spread_labels[batch.positions]
        return p if self.alignment is None else self.alignment(p)

    def weigh(self, p: Tensor, batch: Batch) -> Tensor:
        return self.certainty[batch.positions]

    def losses(self, now: Pass) -> dict[str, Tensor]:
        entropy = F.cross_entropy(now.logits_labelled.float(), now.batch.labels, reduction="none")
        weight = now.weight * self.balance[now.p.argmax(1)]
        return {
            "labelled": (self.balance[now.batch.labels] * entropy).mean(),
            "unlabelled": pseudo_loss(now.logits_strong[0], now.target, weight),
        }


def certainty(p: Floats) -> Floats:
    """1 − H(p) / log K (N,) of probabilities (N, K): 0 where all classes are equally likely, 1 where one is certain."""
    logarithms = np.log(p, out=np.zeros_like(p), where=p > 0)
    entropy: Floats = -(p * logarithms).sum(1)
    clipped: Floats = np.clip(1 - entropy / np.float32(np.log(p.shape[1])), 0, 1)
    return clipped
