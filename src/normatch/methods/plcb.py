"""PLCB: soft pseudo-labels that are kept for each image and renewed every epoch, with mixup (Arazo et al. 2020)."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from normatch.methods.base import Batch, Embedding, Settings, Task, ViewsWanted, methods
from normatch.methods.parts.memory import remember
from normatch.methods.parts.mixing import Mixing, MixSettings
from normatch.methods.parts.pseudo_labels import pseudo_loss
from normatch.methods.parts.weak_to_strong import Features, Pass
from normatch.nets.model import Model

__all__ = ["PLCB", "PLCBSettings"]


@dataclass(frozen=True)
class PLCBSettings(MixSettings):
    """The settings of PLCB."""

    pseudo_label: Literal["soft", "onehot", "sharpened"] = "soft"
    """The target of unlabelled images: the probabilities themselves, one-hot at the largest, or sharpened."""
    alpha: float = 4.0
    """α of Beta(α, α), from which the shares of mixed samples are drawn."""
    balance: float = 0.8
    """λ_A, the weight of the divergence of the mean prediction from the classes' shares."""
    entropy: float = 0.4
    """λ_H, the weight of the mean entropy of the predictions."""
    warmup: float = 10 / 400
    """Share of the run without pseudo-labels, 10 of 400 epochs; at least one epoch."""

    def check(self) -> None:
        super().check()
        self.must_not_be_negative("balance", "entropy")
        self.must_be_probability("warmup")


@methods.named("plcb")
class PLCB(Mixing):
    """L = 1/N Σ w H(y', p(x')) + λ_A · Σ_k π_k log(π_k / p̄_k) + λ_H · 1/N Σ H(p(x')), over N ≤ B + μB mixed samples.

    The pseudo-label of an unlabelled image is the prediction of its latest weak view in the epochs before this one; it
    stays the same during an epoch. Images that have none yet are left out: of the N samples, and of mixup. x' and y'
    are mixed by λ ~ Beta(α, α); p̄ is the mean prediction for all x', π the classes' shares among the labels.

    The paper's π is uniform. Each sample has its own λ here, and the larger share of its mixture; the published code
    has one λ for a batch, α = 1 and, on CIFAR, pseudo-labels of images without augmentation. Its labelled images are at
    least 16 of a batch of 100, here 1 in 1 + μ. w is 1 without consensus.
    """

    summary: ClassVar[str] = "soft pseudo-labels kept per image and renewed every epoch, with mixup"
    paper: ClassVar[str] = "Arazo et al., IJCNN 2020"
    Settings: ClassVar[type[Settings]] = PLCBSettings
    views: ViewsWanted = ViewsWanted(labelled=("weak",), unlabelled=("weak",))

    known: Tensor
    """(Task.unlabelled, K) the pseudo-labels of this epoch, and below the predictions for the next; 0 for none."""
    latest: Tensor
    prior: Tensor

    def __init__(self, model: Model, task: Task, settings: PLCBSettings) -> None:
        super().__init__(model, task, settings)
        for name in ("known", "latest"):
            self.register_buffer(name, torch.zeros(task.unlabelled, task.classes))
        self.register_buffer("prior", torch.tensor(task.prior), persistent=False)
        self.warmup = max(1, math.ceil(settings.warmup * task.steps / task.epoch))

    @property
    def last_start(self) -> int:
        return max(super().last_start, self.warmup * self.task.epoch)

    def begin_epoch(self, epoch: int, embed: Callable[[], Embedding]) -> None:
        if epoch >= self.warmup:
            self.known.copy_(self.latest)

    @torch.no_grad()
    def predict(self, z: Features, batch: Batch) -> Tensor:
        """The pseudo-labels (μB, K); the present predictions are kept for the next epoch."""
        remember(self.latest, batch.positions, super().predict(z, batch))
        return self.known[batch.positions]

    def weigh(self, p: Tensor, batch: Batch) -> Tensor:
        return (p.sum(1) > 0).to(p.dtype)

    def losses(self, now: Pass) -> dict[str, Tensor]:
        x, y = self.mix(now, now.batch.unlabelled)
        logits: Tensor = self.model(x).float()
        p = logits.softmax(1)
        n = len(now.batch.labels)
        known = torch.cat([torch.ones_like(p[:n, 0]), (now.target.sum(1) > 0).to(p.dtype)])
        count = known.sum()
        mean = (known[:, None] * p).sum(0) / count
        balance = (torch.xlogy(self.prior, self.prior) - self.prior * mean.log()).sum()
        return {
            "labelled": n / count * pseudo_loss(logits[:n], y[:n], known[:n]),
            "unlabelled": (len(x) - n) / count * pseudo_loss(logits[n:], y[n:], now.weight),
            "balance": self.settings.balance * balance,
            "entropy": self.settings.entropy * len(x) / count * pseudo_loss(logits, p, known),
        }
