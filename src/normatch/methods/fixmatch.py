"""FixMatch: confident predictions on weak views are the targets of strong views (Sohn et al. 2020)."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from normatch.methods.base import Batch, Settings, methods
from normatch.methods.parts.pseudo_labels import threshold_weights
from normatch.methods.parts.weak_to_strong import WeakToStrong, WeakToStrongSettings

__all__ = ["FixMatch", "FixMatchSettings"]


@dataclass(frozen=True)
class FixMatchSettings(WeakToStrongSettings):
    """The settings of FixMatch."""

    threshold: float = 0.95
    """τ, the least probability at which a pseudo-label is used."""

    def check(self) -> None:
        super().check()
        self.must_be_probability("threshold")


@methods.named("fixmatch")
class FixMatch(WeakToStrong):
    """Where the weak view's p is confident, the strong view learns its one-hot label ŷ.

    L = L_x + 1/μB Σ 1[max p(weak) ≥ τ] · H(ŷ, p(strong))
    """

    summary: ClassVar[str] = "confident weak predictions teach strong views"
    paper: ClassVar[str] = "Sohn et al., NeurIPS 2020"
    Settings: ClassVar[type[Settings]] = FixMatchSettings

    def weigh(self, p: Tensor, batch: Batch) -> Tensor:
        return threshold_weights(p, self.settings.threshold)
