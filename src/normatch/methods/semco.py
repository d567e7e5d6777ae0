"""SemCo: two heads, one on classes and one on vectors of their names, teach each other (Nassar et al. 2021)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from normatch.methods.base import Settings, Task, methods
from normatch.methods.fixmatch import FixMatch, FixMatchSettings
from normatch.methods.parts.class_vectors import class_vectors, groups_of
from normatch.methods.parts.pseudo_labels import pseudo_loss
from normatch.methods.parts.similarity import Projection, product
from normatch.methods.parts.weak_to_strong import Pass, in_one_pass
from normatch.nets.model import Model

__all__ = ["SemCo", "SemCoSettings"]


@dataclass(frozen=True)
class SemCoSettings(FixMatchSettings):
    """The settings of SemCo."""

    vectors: Path | None = None
    """An .npz with word vectors, for classes whose names the package does not know: words (n,), which may be whole
    names, and vectors (n, d)."""
    semantic_threshold: float = 0.7
    """τ_s, the least similarity at which the semantic head's is."""
    semantic_weight: float = 3.0
    """λ, the weight of the semantic head's losses."""
    group_distance: float = 0.2
    """The largest cosine distance of two classes of one group."""

    def __post_init__(self) -> None:
        given: Any = self.vectors
        if isinstance(given, str):
            object.__setattr__(self, "vectors", Path(given))

    def check(self) -> None:
        super().check()
        self.must_be_probability("semantic_threshold")
        self.must_not_be_negative("semantic_weight", "group_distance")


class Guess(NamedTuple):
    """The semantic head's pseudo-labels."""

    vector: Tensor
    """(N, D) the target of the semantic head."""
    label: Tensor
    """(N, K) the class, one-hot: the target of the softmax head."""
    weight: Tensor
    """(N,) 1 where it is used."""


@methods.named("semco")
class SemCo(FixMatch):
    """A second head predicts the vector of the class's name; each head learns its own and the other's pseudo-labels.

    L = L_x + U(ŷ, w) + U(ŷ_s, w_s) + λ [L_s + S(ê, w_s) + S(v_ŷ, w)], where for the strong views
    U(y, w) = 1/μB Σ w H(y, p) and S(e, w) = 1/μB Σ w (1 − cos(f, e)), and L_s = 1/B Σ (1 − cos(f, v_y)).

    f is the output of the semantic head, which has a hidden layer of 2048, and v_c the vector of class c. ŷ and
    w = 1[max p ≥ τ] are the softmax head's. Classes with similar vectors form groups. The semantic head chooses the
    group to whose vectors f is most similar on average, and w_s = 1 if that is at least τ_s; ê is the mean of the
    group's vectors, weighted by the softmax of their similarities to f, and ŷ_s the most similar class of the group.
    The softmax head is the model's.

    The paper's vectors are ConceptNet's. Ours are GloVe's, centred: theirs have more of their direction in common.
    """

    summary: ClassVar[str] = "co-trained with a head on vectors of the class names"
    paper: ClassVar[str] = "Nassar et al., CVPR 2021"
    Settings: ClassVar[type[Settings]] = SemCoSettings

    vectors: Tensor
    """(K, D) of the class names, of length 1."""
    membership: Tensor
    """(K, G) of the classes in groups."""

    def __init__(self, model: Model, task: Task, settings: SemCoSettings) -> None:
        super().__init__(model, task, settings)
        vectors = class_vectors(model.spec.classes, settings.vectors)
        self.register_buffer("vectors", vectors)
        self.register_buffer("membership", groups_of(vectors, settings.group_distance))
        self.semantic = Projection(model.backbone.features, vectors.shape[1], hidden=2048)

    def extra_losses(self, now: Pass) -> dict[str, Tensor]:
        labelled, strong = in_one_pass(self.semantic, [now.z.labelled, now.z.strong[0]])
        guess, settings = self.guess(self.semantic(now.z.weak[0])), self.settings
        own = _distance(strong, guess.vector, guess.weight)
        others = _distance(strong, self.vectors[now.p.argmax(1)], now.weight)
        of_labels = _distance(labelled, self.vectors[now.batch.labels], torch.ones_like(labelled[:, 0]))
        return {
            "co_training": pseudo_loss(now.logits_strong[0], guess.label, guess.weight),
            "semantic": settings.semantic_weight * of_labels,
            "semantic_unlabelled": settings.semantic_weight * (own + others),
        }

    @torch.no_grad()
    def guess(self, f: Tensor) -> Guess:
        """The pseudo-labels of outputs (N, D) of the semantic head, unit vectors."""
        similarity = product(f, self.vectors.T)
        best, group = product(similarity, self.membership / self.membership.sum(0)).max(1)
        inside = self.membership.T[group]
        share = similarity.softmax(1) * inside
        share = share / share.sum(1, keepdim=True)
        label = F.one_hot(share.argmax(1), share.shape[1]).float()
        return Guess(product(share, self.vectors), label, (best >= self.settings.semantic_threshold).float())


def _distance(f: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """1/N Σ w (1 − cos(f, target)) of vectors (N, D) and weights (N,)."""
    return (weight * (1 - F.cosine_similarity(f, target))).mean()
