"""CoMatch: pseudo-labels smoothed by a memory, and embeddings whose graph follows theirs (Li et al. 2021)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from normatch.methods.base import Batch, Settings, Task, ViewsWanted, methods
from normatch.methods.fixmatch import FixMatch, FixMatchSettings
from normatch.methods.parts.memory import Queue
from normatch.methods.parts.similarity import Projection, log_similarities, product, similarity_loss
from normatch.methods.parts.weak_to_strong import Features, Pass, in_one_pass
from normatch.nets.model import Model

__all__ = ["CoMatch", "CoMatchSettings", "pseudo_label_graph"]


@dataclass(frozen=True)
class CoMatchSettings(FixMatchSettings):
    """The settings of CoMatch."""

    pseudo_label: Literal["soft", "onehot", "sharpened"] = "soft"
    """The target of the strong view."""
    alignment: bool = True
    """Distribution alignment of the pseudo-labels."""
    smoothing: float = 0.9
    """α, the share of the head's prediction in a pseudo-label; the rest is the memory's."""
    memory: int = 2560
    """Number of embeddings and pseudo-labels that are remembered."""
    similarity: float = 0.8
    """T, the least similarity of two pseudo-labels that connects them."""
    contrast: float = 0.2
    """t, the temperature of similarities of embeddings."""
    contrast_weight: float = 1.0
    """λ_ctr, the weight of the contrastive loss."""
    dim: int = 64
    """Dimensions of an embedding."""

    def check(self) -> None:
        super().check()
        self.must_be_probability("smoothing", "similarity")
        self.must_be_positive("memory", "contrast", "dim")
        self.must_not_be_negative("contrast_weight")


@methods.named("comatch")
class CoMatch(FixMatch):
    """Class probabilities and embeddings that train each other.

    L = L_x + 1/μB Σ 1[max q ≥ τ] · H(q, p(strong)) + λ_ctr / μB Σ_b H(ŵ^q_b, ŵ^z_b).

    - Memory smoothing: q = α p + (1 − α) Σ_k a_k p_k, with p the aligned prediction for the weak view, and a the
      softmax of z · z_k / t over the last embeddings of labelled images (whose p_k are their labels) and weak views.
    - The graph of pseudo-labels, w^q_bj = q_b · q_j where that is at least T, else 0, and 1 for j = b, is the target of
      the graph of embeddings, w^z_bj = exp(z_b · z'_j / t) between two strong views; ŵ has rows that sum to 1.

    The paper's second strong view crops and changes colours as SimCLR does; here both are RandAugment's, which
    feature vectors have too. As in the paper, only the first is trained on q.
    """

    summary: ClassVar[str] = "memory-smoothed pseudo-labels and a graph of embeddings"
    paper: ClassVar[str] = "Li et al., ICCV 2021"
    Settings: ClassVar[type[Settings]] = CoMatchSettings
    views: ViewsWanted = ViewsWanted(labelled=("weak",), unlabelled=("weak", "strong", "strong"))

    def __init__(self, model: Model, task: Task, settings: CoMatchSettings) -> None:
        super().__init__(model, task, settings)
        self.projection = Projection(model.backbone.features, settings.dim)
        self.queue = Queue(settings.memory, settings.dim, task.classes)

    @torch.no_grad()
    def predict(self, z: Features, batch: Batch) -> Tensor:
        p = super().predict(z, batch)
        weak, labelled = in_one_pass(self.projection, [z.weak[0], z.labelled])
        remembered = self.queue.attend(weak, self.settings.contrast)
        q = torch.where(self.queue.seen > 0, torch.lerp(remembered, p, self.settings.smoothing), p)
        truth = F.one_hot(batch.labels, p.shape[1]).to(p.dtype)
        self.queue.push(torch.cat([weak, labelled]), torch.cat([p, truth]))
        return q

    def losses(self, now: Pass) -> dict[str, Tensor]:
        return super().losses(now._replace(logits_strong=now.logits_strong[:1]))

    def extra_losses(self, now: Pass) -> dict[str, Tensor]:
        first, second = in_one_pass(self.projection, now.z.strong)
        graph = pseudo_label_graph(now.p, self.settings.similarity)
        loss = similarity_loss(log_similarities(first, second, self.settings.contrast), graph)
        return {"contrast": self.settings.contrast_weight * loss}


def pseudo_label_graph(q: Tensor, least: float) -> Tensor:
    """ŵ^q (N, N) of pseudo-labels (N, K): edges of similarity ``least`` or more, and 1 to itself; rows sum to 1."""
    similarity = product(q, q.T)
    itself = torch.eye(len(q), dtype=torch.bool, device=q.device)
    edges = torch.where(similarity >= least, similarity, 0.0).masked_fill(itself, 1.0)
    return edges / edges.sum(1, keepdim=True)
