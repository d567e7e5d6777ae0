"""UDA: sharpened confident predictions are the targets of strong views (Xie et al. 2020)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from normatch.methods.base import Settings, methods
from normatch.methods.fixmatch import FixMatch, FixMatchSettings
from normatch.methods.parts.weak_to_strong import Pass

__all__ = ["UDA", "UDASettings"]


@dataclass(frozen=True)
class UDASettings(FixMatchSettings):
    """The settings of UDA."""

    pseudo_label: Literal["soft", "onehot", "sharpened"] = "sharpened"
    """The target of the strong views: the probabilities themselves, one-hot at the largest, or sharpened."""
    temperature: float = 0.4
    """T of sharpened pseudo-labels, p^(1/T) renormalised."""
    threshold: float = 0.8
    """β, the least probability at which a pseudo-label is used."""
    annealing: Literal["none", "log", "linear", "exp"] = "none"
    """Schedule of training signal annealing: labelled images that are predicted too well for the time do not count."""


@methods.named("uda")
class UDA(FixMatch):
    """L = L_x + 1/μB Σ 1[max p ≥ β] · H(sharpen(p, T), p(strong)).

    The paper has the divergence instead of the cross-entropy H; they differ by the target's entropy, which has no
    gradient. With training signal annealing, L_x is the mean over those labelled images whose class has a probability
    below η(t) = α(t) · (1 − 1/K) + 1/K, with t from 0 to 1 over the run and

        log: α = 1 − exp(−5t);  linear: α = t;  exp: α = exp(5 (t − 1)).

    Annealing is off by default, as in the paper's runs on CIFAR-10.
    """

    summary: ClassVar[str] = "sharpened confident predictions teach strong views"
    paper: ClassVar[str] = "Xie et al., NeurIPS 2020"
    Settings: ClassVar[type[Settings]] = UDASettings

    def losses(self, now: Pass) -> dict[str, Tensor]:
        losses = super().losses(now)
        if self.settings.annealing == "none":
            return losses
        entropy = F.cross_entropy(now.logits_labelled.float(), now.batch.labels, reduction="none")
        counts = torch.exp(-entropy) < self.ceiling(now.batch.step)
        return losses | {"labelled": (counts * entropy).sum() / counts.sum().clamp_min(1)}

    def ceiling(self, step: Tensor) -> Tensor:
        """η(t), the probability from which a labelled image does not count."""
        t = step / self.steps
        schedules = {"log": 1 - torch.exp(-5 * t), "linear": t, "exp": torch.exp(5 * (t - 1))}
        least = 1 / self.task.classes
        return schedules[self.settings.annealing] * (1 - least) + least
