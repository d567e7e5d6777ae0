"""FixMatch: confident predictions on weak views are the targets of strong views (Sohn et al. 2020)."""

from dataclasses import dataclass
from typing import ClassVar

from normatch.errors import UserError
from normatch.methods.contract import Batch, Outcome, PseudoLabels, Settings, methods
from normatch.methods.parts.weak_to_strong import WeakToStrong, WeakToStrongSettings
from normatch.methods.parts.weights import threshold_weights

__all__ = ["FixMatch", "FixMatchSettings"]


@dataclass(frozen=True)
class FixMatchSettings(WeakToStrongSettings):
    """The settings of FixMatch."""

    threshold: float = 0.95
    """Least probability at which a pseudo-label is used."""

    def check(self) -> None:
        super().check()
        if not 0 <= self.threshold <= 1:
            raise UserError(f"settings.threshold is {self.threshold}: give a probability from 0 to 1")


@methods.named("fixmatch")
class FixMatch(WeakToStrong):
    """L = L_x + 1/μB Σ 1[max p ≥ threshold] · H(ŷ, p(strong))."""

    summary: ClassVar[str] = "confident weak predictions teach strong views"
    Settings: ClassVar[type[Settings]] = FixMatchSettings

    def forward(self, batch: Batch) -> Outcome:
        z_labelled, z_weak, z_strong = self.embed(batch)
        p = self.believe(z_weak)
        weight = threshold_weights(p, self.settings.threshold)
        logits_labelled, logits_strong = self.classify(z_labelled, z_strong)
        losses = self.losses(logits_labelled, batch.labels, logits_strong, p, weight)
        pseudo = PseudoLabels(p.argmax(1), weight, weight > 0, p.amax(1), None)
        return Outcome(losses, {}, pseudo)
