"""SimPLE: pseudo-labels teach strong views of their own image and of similar images (Hu et al. 2021)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from normatch.methods.base import Batch, Settings, ViewsWanted, methods
from normatch.methods.fixmatch import FixMatch, FixMatchSettings
from normatch.methods.parts.consistency import squared_error
from normatch.methods.parts.pseudo_labels import labelled_loss
from normatch.methods.parts.ramps import linear_ramp
from normatch.methods.parts.weak_to_strong import Features, Pass, in_one_pass

__all__ = ["SimPLE", "SimPLESettings", "pair_loss"]


@dataclass(frozen=True)
class SimPLESettings(FixMatchSettings):
    """The settings of SimPLE."""

    pseudo_label: Literal["soft", "onehot", "sharpened"] = "sharpened"
    """The target of the strong views: the probabilities themselves, one-hot at the largest, or sharpened."""
    weight: float = 75.0
    """λ_U, the weight of the unlabelled loss."""
    pair_weight: float = 75.0
    """λ_P, the weight of the pair loss."""
    ramp: float = 0.0
    """Share of the run over which both weights grow linearly; 0: full weights from the first step, as published."""
    threshold: float = 0.95
    """τ_c, the least probability at which a guess, as it is after sharpening, teaches."""
    similarity: float = 0.9
    """τ_s, the similarity of two guesses above which the images are a pair."""

    def check(self) -> None:
        super().check()
        self.must_not_be_negative("weight", "pair_weight")
        self.must_be_probability("similarity", "ramp")


@methods.named("simple")
class SimPLE(FixMatch):
    """L = L_x + λ_U · 1/nK Σ w ‖q − p(strong)‖² + λ_P · 2/n(n−1) Σ_{i≠j} w_i φ(s(q_i, q_j)) (1 − s(q_i, p_j(strong))).

    The guess q is the mean prediction of the averaged model for two weak views, sharpened; w_i = 1 if its largest
    probability reaches τ_c. s(a, b) = Σ_k √(a_k b_k) is the Bhattacharyya coefficient, and φ(s) is s above τ_s, else 0:
    confident guesses also teach the strong views of all images whose guesses are similar. n = μB. The pair loss is that
    of the published code; in the paper its w_i is the largest probability where that reaches τ_c.

    The paper has 7 strong views of as many unlabelled images as labelled ones; here one view of μ times as many. Its
    runs have 4,000 labels and full weights from the first step; with few labels and steps the guesses can collapse:
    give such runs a ramp.
    """

    summary: ClassVar[str] = "pseudo-labels also teach similar images"
    paper: ClassVar[str] = "Hu et al., CVPR 2021"
    Settings: ClassVar[type[Settings]] = SimPLESettings
    views: ViewsWanted = ViewsWanted(labelled=("weak",), unlabelled=("weak", "weak", "strong"))

    def embed(self, batch: Batch) -> Features:
        """Without consensus the student does not need the weak views: the teacher guesses."""
        if self.consensus is not None:
            return super().embed(batch)
        labelled, strong = in_one_pass(self.model.features, [batch.labelled[0], batch.unlabelled[2]])
        return Features(labelled, (), (strong,))

    def weigh(self, p: Tensor, batch: Batch) -> Tensor:
        return super().weigh(self.target(p, batch), batch)

    def weak_logits(self, z: Features, batch: Batch) -> Tensor:
        logits: Tensor = batch.teacher(torch.cat(batch.unlabelled[:2]))
        return logits

    def losses(self, now: Pass) -> dict[str, Tensor]:
        (strong,) = now.logits_strong
        grown = linear_ramp(now.batch.step, self.steps, self.settings.ramp)
        pairs = pair_loss(strong, now.target, now.weight, self.settings.similarity)
        return {
            "labelled": labelled_loss(now.logits_labelled, now.batch.labels),
            "unlabelled": grown * self.settings.weight * squared_error(strong, now.target, now.weight),
            "pair": grown * self.settings.pair_weight * pairs,
        }


def pair_loss(logits: Tensor, target: Tensor, weight: Tensor, threshold: float) -> Tensor:
    """2/N(N−1) Σ_{i≠j} w_i φ(s(q_i, q_j)) (1 − s(q_i, p_j)): logits and target (N, K), weight (N,)."""
    with torch.autocast(logits.device.type, enabled=False):
        q, p = target.sqrt(), (logits.float().log_softmax(1) / 2).exp()
        similarity = (q @ q.T).fill_diagonal_(0)
        distance = 1 - q @ p.T
    pairs = torch.where(similarity > threshold, similarity, 0.0)
    n = len(logits)
    return (weight[:, None] * pairs * distance).sum() * 2 / max(n * (n - 1), 1)
