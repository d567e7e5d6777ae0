"""Pseudo-Label: the class that the model predicts is the target of the same image (Lee 2013)."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from normatch.errors import UserError
from normatch.methods.base import Settings, ViewsWanted, methods
from normatch.methods.parts.ramps import linear_ramp
from normatch.methods.parts.weak_to_strong import Pass, WeakToStrong, WeakToStrongSettings

__all__ = ["PseudoLabel", "PseudoLabelSettings"]


@dataclass(frozen=True)
class PseudoLabelSettings(WeakToStrongSettings):
    """The settings of Pseudo-Label."""

    weight: float = 3.0
    """α_f, the final weight of the pseudo-labels."""
    begin: float = 0.1
    """T₁, the share of the run after which the weight begins to grow."""
    end: float = 0.6
    """T₂, the share of the run after which it is α_f."""

    def check(self) -> None:
        super().check()
        self.must_not_be_negative("weight")
        self.must_be_probability("begin", "end")
        if self.begin > self.end:
            raise UserError(f"settings.begin is {self.begin}, after settings.end {self.end}: give a smaller share")


@methods.named("pseudo-label")
class PseudoLabel(WeakToStrong):
    """L = L_x + α(t) · 1/μB Σ H(ŷ, p(u)), where ŷ = argmax p(u) of the same weak view.

    α(t) is 0 until T₁, then grows linearly to α_f = 3 at T₂. The paper's T₁ = 100 and T₂ = 600 epochs are shares of a
    run here, 0.1 and 0.6. All pseudo-labels count: there is no threshold.
    """

    summary: ClassVar[str] = "the predicted class is the target of the same image"
    paper: ClassVar[str] = "Lee, ICML Workshop 2013"
    Settings: ClassVar[type[Settings]] = PseudoLabelSettings
    views: ViewsWanted = ViewsWanted(labelled=("weak",), unlabelled=("weak",))

    @property
    def last_start(self) -> int:
        return max(super().last_start, int(self.settings.begin * self.task.steps))

    def losses(self, now: Pass) -> dict[str, Tensor]:
        losses = super().losses(now)
        grown = linear_ramp(now.batch.step, self.steps, self.settings.end, self.settings.begin)
        return losses | {"unlabelled": self.settings.weight * grown * losses["unlabelled"]}
