"""Mixup: convex sums of two samples and of their targets; and the template of methods that learn from mixed samples."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from scipy import stats
from torch import Tensor, nn

from normatch.errors import UserError
from normatch.methods.base import Batch, Settings, Task
from normatch.methods.parts.weak_to_strong import Features, Pass, WeakToStrong, WeakToStrongSettings, in_one_pass
from normatch.nets.model import Model

__all__ = ["Beta", "MixSettings", "Mixing", "mixup"]


class Beta(nn.Module):
    """Draws from Beta(α, α) by its quantile function, read off a table: a uniform draw and a linear interpolation, so
    that no rejection loop stands in the captured step."""

    POINTS = 4097

    quantiles: Tensor

    def __init__(self, alpha: float) -> None:
        super().__init__()
        values = stats.beta.ppf(np.linspace(0, 1, self.POINTS), alpha, alpha)
        self.register_buffer("quantiles", torch.tensor(values, dtype=torch.float32), persistent=False)

    def forward(self, n: int) -> Tensor:
        """(n,) independent draws."""
        at = torch.rand(n, device=self.quantiles.device) * (self.POINTS - 1)
        low = at.long().clamp(max=self.POINTS - 2)
        return torch.lerp(self.quantiles[low], self.quantiles[low + 1], at - low)


def mixup(x: Tensor, y: Tensor, share: Tensor, partner: Tensor) -> tuple[Tensor, Tensor]:
    """share · x + (1 − share) · x[partner], and y the same: x (N, …), y (N, K), share (N,) or (), partner (N,).

    Images stay on their scale of 0 … 255, of which the model takes floats too.
    """
    x, share = x.float(), share.expand(len(x))
    of_x = share.view(-1, *[1] * (x.ndim - 1))
    return torch.lerp(x[partner], x, of_x), torch.lerp(y[partner], y, share[:, None])


@dataclass(frozen=True)
class MixSettings(WeakToStrongSettings):
    """Settings common to methods that learn from mixed samples."""

    pseudo_label: Literal["soft", "onehot", "sharpened"] = "sharpened"
    """The target of unlabelled samples: the probabilities themselves, one-hot at the largest, or sharpened."""
    alpha: float = 0.75
    """α of Beta(α, α), from which the shares of mixed samples are drawn."""

    def check(self) -> None:
        super().check()
        if self.alpha <= 0:
            raise UserError(f"settings.alpha is {self.alpha}: give a positive number")
        if self.passes != "joint":
            raise UserError(f"settings.passes is {self.passes!r}, which mixed samples do not have: choose 'joint'")


class Mixing(WeakToStrong):
    """The weak-to-strong template for mixed samples: the weak views, which are not mixed, only give pseudo-labels."""

    Settings: ClassVar[type[Settings]] = MixSettings

    def __init__(self, model: Model, task: Task, settings: MixSettings) -> None:
        super().__init__(model, task, settings)
        self.beta = Beta(settings.alpha)

    def embed(self, batch: Batch) -> Features:
        """Features of the labelled and the weak views, without gradients; no view learns as it is."""
        # Detached, not under no_grad: in older versions of torch autocast keeps the weights that it casts there,
        # and the pass over mixed samples would use them, without gradients.
        weak, _ = self.unlabelled_views(batch)
        labelled, *others = in_one_pass(lambda x: self.model.features(x).detach(), [batch.labelled[0], *weak])
        return Features(labelled, tuple(others), ())

    def mix(self, now: Pass, views: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """The labelled samples and these views of the unlabelled ones, each mixed with any other: x (N, …), y (N, K).

        The larger share is the sample's own, so that the order stays. Targets that are 0 are unknown yet: such samples
        are not mixed into others.
        """
        x = torch.cat([now.batch.labelled[0], *views])
        y = torch.cat([F.one_hot(now.batch.labels, self.task.classes).float(), *[now.target] * len(views)])
        partner = torch.rand(len(x), device=x.device).argsort()
        share = self.beta(len(x))
        share = torch.where(y[partner].sum(1) > 0, torch.maximum(share, 1 - share), 1.0)
        return mixup(x, y, share, partner)
