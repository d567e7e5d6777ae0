"""Π-Model: two views of an image get the same prediction (Laine and Aila 2017)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from normatch.methods.base import Batch, Method, Outcome, Settings, ViewsWanted, methods
from normatch.methods.parts.consistency import squared_error
from normatch.methods.parts.pseudo_labels import labelled_loss
from normatch.methods.parts.ramps import sigmoid_ramp

__all__ = ["PiModel", "PiModelSettings"]


@dataclass(frozen=True)
class PiModelSettings(Settings):
    """The settings of the Π-Model and of Mean Teacher."""

    weight: float = 100.0
    """w_max, the largest weight of the consistency."""
    ramp: float = 80 / 300
    """Share of the run over which the weight grows: 80 of 300 epochs."""

    def check(self) -> None:
        super().check()
        self.must_not_be_negative("weight")
        self.must_be_probability("ramp")


@methods.named("pi-model")
class PiModel(Method):
    """L = L_x + w(t) · 1/NK Σ ‖p(a) − p(b)‖², where a and b are two weak views of all N = B + μB images of the batch.

    w(t) = w_max · exp(−5 (1 − t)²), with t from 0 to 1 over the ramp. Gradients flow into both views.

    The paper divides the cross-entropy of the labelled images by the size of the whole batch and multiplies w_max = 100
    by their share in the data, M/N; with the mean over the labelled images, as here, the same ratio of both losses is
    w_max itself. Its network has dropout and Gaussian noise at the input; here only the augmentation is random.
    """

    summary: ClassVar[str] = "two views of an image get the same prediction"
    paper: ClassVar[str] = "Laine and Aila, ICLR 2017"
    Settings: ClassVar[type[Settings]] = PiModelSettings
    views: ViewsWanted = ViewsWanted(labelled=("weak", "weak"), unlabelled=("weak", "weak"))

    def forward(self, batch: Batch) -> Outcome:
        first, second = (torch.cat(views) for views in zip(batch.labelled, batch.unlabelled, strict=True))
        logits = self.model(first)
        weight = self.settings.weight * sigmoid_ramp(batch.step, self.steps, self.settings.ramp)
        losses = {
            "labelled": labelled_loss(logits[: len(batch.labels)], batch.labels),
            "consistency": weight * squared_error(logits, self.other(second, batch)),
        }
        return Outcome(losses, {})

    def other(self, images: Tensor, batch: Batch) -> Tensor:
        """(N, K) the probabilities of the second view."""
        p: Tensor = self.model(images).float().softmax(1)
        return p
