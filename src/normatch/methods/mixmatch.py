"""MixMatch: averaged and sharpened guesses of labels, mixed with the labelled images (Berthelot et al. 2019)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from normatch.methods.base import Settings, ViewsWanted, methods
from normatch.methods.parts.consistency import squared_error
from normatch.methods.parts.mixing import Mixing, MixSettings
from normatch.methods.parts.ramps import linear_ramp
from normatch.methods.parts.weak_to_strong import Pass

__all__ = ["MixMatch", "MixMatchSettings"]


@dataclass(frozen=True)
class MixMatchSettings(MixSettings):
    """The settings of MixMatch."""

    weight: float = 75.0
    """λ_u, the weight of the unlabelled loss."""
    ramp: float = 1 / 64
    """Share of the run over which the weight grows linearly."""

    def check(self) -> None:
        super().check()
        self.must_not_be_negative("weight")
        self.must_be_probability("ramp")


@methods.named("mixmatch")
class MixMatch(Mixing):
    """L = 1/B Σ H(y', p(x')) + λ_u(t) · 1/NK Σ w · ‖q' − p(u')‖², over mixed samples x' and N = 2μB mixed samples u'.

    The guess of a label is q = sharpen(p̄, T), where p̄ is the mean prediction of K = 2 weak views of an unlabelled
    image; both views have it. Labelled and unlabelled samples are mixed with others of all of these in random order:
    x' = λ' x + (1 − λ') x̃, the targets alike, λ ~ Beta(α, α) and λ' = max(λ, 1 − λ), for each sample anew.

    The weight grows over a 64th of the run: the paper's 16,384 of 2^20 steps. In runs of minutes it then comes before
    the labels are learnt, and the guesses can collapse: give them a longer ramp. The paper's batch has as many
    unlabelled images as labelled ones, here μ times as many. w is 1 without consensus.
    """

    summary: ClassVar[str] = "averaged, sharpened guesses of labels, mixed"
    paper: ClassVar[str] = "Berthelot et al., NeurIPS 2019"
    Settings: ClassVar[type[Settings]] = MixMatchSettings
    views: ViewsWanted = ViewsWanted(labelled=("weak",), unlabelled=("weak", "weak"))

    def losses(self, now: Pass) -> dict[str, Tensor]:
        views = now.batch.unlabelled
        x, y = self.mix(now, views)
        logits, n = self.model(x).float(), len(now.batch.labels)
        grown = linear_ramp(now.batch.step, self.steps, self.settings.ramp)
        weight = torch.cat([now.weight] * len(views))
        return {
            "labelled": F.cross_entropy(logits[:n], y[:n]),
            "unlabelled": self.settings.weight * grown * squared_error(logits[n:], y[n:], weight),
        }
