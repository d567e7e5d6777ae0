"""SimMatch: predictions and similarities to labelled images that agree across views (Zheng et al. 2022)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normatch.methods.base import Batch, Settings, Task, methods
from normatch.methods.fixmatch import FixMatch, FixMatchSettings
from normatch.methods.parts.memory import remember
from normatch.methods.parts.pseudo_labels import Alignment
from normatch.methods.parts.similarity import Projection, log_similarities, product, similarity_loss
from normatch.methods.parts.weak_to_strong import Features, Pass
from normatch.nets.model import Model

__all__ = ["SimMatch", "SimMatchSettings"]


@dataclass(frozen=True)
class SimMatchSettings(FixMatchSettings):
    """The settings of SimMatch."""

    pseudo_label: Literal["soft", "onehot", "sharpened"] = "soft"
    """The target of the strong view."""
    alignment: bool = True
    """Distribution alignment of the pseudo-labels, over 256 batches as in the published code."""
    smoothing: float = 0.9
    """α, the share of the head's prediction in a pseudo-label; the rest is that of similar labelled images."""
    contrast: float = 0.1
    """t, the temperature of similarities of embeddings."""
    instance_weight: float = 1.0
    """λ_in, the weight of the loss on similarities."""
    bank: Literal["ensemble", "teacher"] = "ensemble"
    """Embeddings of labelled images: averages over the epochs (the paper's choice for small data sets), or those of the
    averaged model, which then also makes the pseudo-labels (its choice for ImageNet)."""
    memory: float = 0.7
    """m, the share of the past in an averaged embedding, with bank ``ensemble``."""
    dim: int = 128
    """Dimensions of an embedding."""

    def check(self) -> None:
        super().check()
        self.must_be_probability("smoothing", "memory")
        self.must_be_positive("contrast", "dim", "smoothing")
        self.must_not_be_negative("instance_weight")


@methods.named("simmatch")
class SimMatch(FixMatch):
    """Two similarities of an unlabelled image, to classes and to labelled images, that correct each other.

    L = L_x + 1/μB Σ 1[max p̂ ≥ τ] · H(p̂, p(strong)) + λ_in / μB Σ H(q̂, q(strong)).

    q is the softmax of z · z_i / t over the embeddings z_i of all labelled images, kept in a bank. With p the aligned
    prediction for the weak view and q its similarities:

    - aggregation: p̂_c = α p_c + (1 − α) Σ_i 1[y_i = c] q_i;
    - unfolding: q̂_i ∝ q_i p_{y_i}.

    A labelled image that has not been seen yet is left out. The bank takes the labelled batch in before it is used; the
    paper does so after, and its code uses the bank from the second epoch on.
    """

    summary: ClassVar[str] = "similarities to classes and to labelled images"
    paper: ClassVar[str] = "Zheng et al., CVPR 2022"
    Settings: ClassVar[type[Settings]] = SimMatchSettings
    averaged: ClassVar[tuple[str, ...]] = ("projection",)

    embeddings: Tensor
    """(Task.labelled, dim) of the labelled images, of length 1."""
    label: Tensor
    """(Task.labelled,) their classes; −1 for those not yet seen."""

    def __init__(self, model: Model, task: Task, settings: SimMatchSettings) -> None:
        super().__init__(model, task, settings)
        if settings.alignment:
            self.alignment = Alignment(task.classes, batches=256)
        self.projection = Projection(model.backbone.features, settings.dim)
        self.register_buffer("embeddings", torch.zeros(task.labelled, settings.dim))
        self.register_buffer("label", torch.full((task.labelled,), -1))

    def guide(self, batch: Batch) -> tuple[Model, nn.Module]:
        """The model and the projection that see the weak views."""
        if self.settings.bank == "ensemble":
            return self.model, self.projection
        return batch.teacher, batch.teacher_heads["projection"]

    def embed(self, batch: Batch) -> Features:
        z = super().embed(batch)
        if self.settings.bank == "ensemble":
            return z
        with torch.no_grad():
            return z._replace(weak=(batch.teacher.features(batch.unlabelled[0]),))

    @torch.no_grad()
    def predict(self, z: Features, batch: Batch) -> Tensor:
        self.update_bank(z, batch)
        aggregated = product(self.similarities(z, batch), self.truth())
        return torch.lerp(aggregated, super().predict(z, batch), self.settings.smoothing)

    def weak_logits(self, z: Features, batch: Batch) -> Tensor:
        logits: Tensor = self.guide(batch)[0].head(z.weak[0])
        return logits

    def extra_losses(self, now: Pass) -> dict[str, Tensor]:
        settings, truth = self.settings, self.truth()
        with torch.no_grad():
            q = self.similarities(now.z, now.batch)
            p = (now.p - (1 - settings.smoothing) * product(q, truth)) / settings.smoothing  # before aggregation
            unfolded = q * product(p.clamp_min(0), truth.T)
            unfolded = unfolded / unfolded.sum(1, keepdim=True).clamp_min(torch.finfo(q.dtype).tiny)
        strong = log_similarities(self.projection(now.z.strong[0]), self.embeddings, settings.contrast, self.label >= 0)
        return {"instances": settings.instance_weight * similarity_loss(strong, unfolded)}

    def update_bank(self, z: Features, batch: Batch) -> None:
        """Take the embeddings of the labelled batch in."""
        at, (model, projection) = batch.labelled_positions, self.guide(batch)
        if self.settings.bank == "ensemble":
            # An image's first embedding is averaged with zeros, which changes its length only.
            new = torch.lerp(projection(z.labelled), self.embeddings[at], self.settings.memory)
        else:
            new = projection(model.features(batch.labelled[0]))
        remember(self.embeddings, at, F.normalize(new, dim=1))
        remember(self.label, at, batch.labels)

    def similarities(self, z: Features, batch: Batch) -> Tensor:
        """q (μB, Task.labelled) of the weak views."""
        embedded = self.guide(batch)[1](z.weak[0])
        return log_similarities(embedded, self.embeddings, self.settings.contrast, self.label >= 0).exp()

    def truth(self) -> Tensor:
        """(Task.labelled, K) the classes in the bank, one-hot; 0 for images not yet seen."""
        return (self.label[:, None] == torch.arange(self.task.classes, device=self.label.device)).float()
