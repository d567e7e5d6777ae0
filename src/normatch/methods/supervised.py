"""Plain supervised training on the labelled images alone: the baseline for all other methods."""

from typing import ClassVar

from normatch.methods.base import Batch, Method, Outcome, methods
from normatch.methods.parts.pseudo_labels import labelled_loss

__all__ = ["Supervised"]


@methods.named("supervised")
class Supervised(Method):
    """L = L_x on weakly augmented labelled images: the baseline that every other method must beat."""

    summary: ClassVar[str] = "the labelled images alone"

    def forward(self, batch: Batch) -> Outcome:
        (images,) = batch.labelled
        return Outcome({"labelled": labelled_loss(self.model(images), batch.labels)}, {})
