"""Pseudo-labels, aligned and weighted (FixMatch, NorMatch's eq. 3, SoftMatch), and the losses; all in float32."""

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = [
    "AdaptiveWeights",
    "Alignment",
    "aligned",
    "consensus_weights",
    "labelled_loss",
    "pseudo_loss",
    "sharpen",
    "targets",
    "threshold_weights",
]


def labelled_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """L_x = mean H(y, p): logits (B, K), labels (B,)."""
    return F.cross_entropy(logits.float(), labels)


def pseudo_loss(logits: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """L_u = 1/μB Σ τ · H(ŷ, p) (eq. 4): logits and target (N, K), weight (N,). Zero weights count in the mean."""
    entropy = -(target * F.log_softmax(logits.float(), 1)).sum(1)
    return (weight * entropy).mean()


def targets(p: Tensor, one_hot: bool) -> Tensor:
    """The target ŷ for probabilities (N, K): the probabilities themselves, or one-hot at the largest."""
    return F.one_hot(p.argmax(1), p.shape[1]).to(p.dtype) if one_hot else p


def sharpen(p: Tensor, temperature: float) -> Tensor:
    """p^(1/T), renormalised (MixMatch, eq. 7), for probabilities (N, K)."""
    return (p.clamp_min(torch.finfo(p.dtype).tiny).log() / temperature).softmax(1)


def aligned(p: Tensor, average: Tensor, target: Tensor | None = None) -> Tensor:
    """p · q / p̄, renormalised, for probabilities (N, K), p̄ (K,) and the target q (K,), if it is not uniform."""
    ratio = p / average.clamp_min(torch.finfo(p.dtype).tiny)
    if target is not None:
        ratio = ratio * target
    return ratio / ratio.sum(1, keepdim=True)


class Alignment(nn.Module):
    """Distribution alignment (Section 4.1): p · q / p̄, renormalised, so that classes have the shares q on average.

    p̄ is the mean of the last ``batches`` batch means, including this one; 32 as in the published code. ``target`` is q,
    such as ``task.prior``; None for equally frequent classes.
    """

    queue: Tensor
    seen: Tensor
    target: Tensor | None

    def __init__(self, classes: int, batches: int = 32, target: Sequence[float] | None = None) -> None:
        super().__init__()
        self.register_buffer("target", None if target is None else torch.tensor(target), persistent=False)
        self.register_buffer("queue", torch.zeros(batches, classes))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def forward(self, p: Tensor, target: Tensor | None = None) -> Tensor:
        """(N, K) probabilities → (N, K) aligned probabilities; remembers the batch's mean. ``target`` (K,) is q of this
        batch, if it varies."""
        self.queue.index_copy_(0, (self.seen % len(self.queue)).view(1), p.mean(0, keepdim=True))
        self.seen.add_(1)
        average = self.queue.sum(0) / self.seen.clamp(max=len(self.queue))
        return aligned(p, average, self.target if target is None else target)


def threshold_weights(p: Tensor, threshold: Tensor | float) -> Tensor:
    """1 where the largest probability reaches the threshold, one for all or (N,), else 0. (N, K) → (N,)"""
    return (p.amax(1) >= threshold).to(p.dtype)


def consensus_weights(
    main: Tensor, others: list[Tensor], disagree: Literal["min", "drop"] = "min"
) -> tuple[Tensor, Tensor]:
    """NCUE (eq. 3): τ = 1 where all classifiers name the same class, else the least of their confidences.

    ``main`` and each of ``others`` are probabilities (N, K). Confidence is a classifier's largest probability.
    ``drop`` is the variant of Table 1: τ = 0 on disagreement. A classifier with several largest probabilities names no
    class and agrees with none: an untrained flow finds all classes equally likely, which must not count as agreement
    with a head that names the first class. Returns τ (N,) and whether they agree (N,).
    """
    probabilities = torch.stack([main, *others])
    confidences = probabilities.amax(2)
    named = probabilities == confidences.unsqueeze(2)
    agree = named.all(0).any(1) & (named.sum(2) == 1).all(0)
    disputed = confidences.amin(0) if disagree == "min" else torch.zeros_like(confidences[0])
    return torch.where(agree, torch.ones_like(disputed), disputed), agree


class AdaptiveWeights(nn.Module):
    r"""SoftMatch's weights (arXiv:2301.10921), with a share of the standard deviation.

    .. math:: w = \exp\left(-\frac{\min(c - μ, 0)^2}{2 (σ/n)^2}\right)

    for a confidence c, where μ and σ² are running averages of its mean and variance in a batch, including this one: 1
    for all that is more confident than the average, less and less for the rest. n is 2 in the published code and in
    NorMatch, 1 in SoftMatch's paper; the paper's variance has ``correction`` 1, NorMatch's 0.
    """

    RATE = 0.001
    """Share of a new batch in the running averages."""

    mean: Tensor
    variance: Tensor

    def __init__(self, classes: int, n_sigma: float = 2.0, correction: int = 0) -> None:
        super().__init__()
        self.n_sigma, self.correction = n_sigma, correction
        self.register_buffer("mean", torch.tensor(1 / classes))
        self.register_buffer("variance", torch.tensor(1.0))

    @torch.no_grad()
    def forward(self, confidence: Tensor, weighed: Tensor | None = None) -> Tensor:
        """(N,) confidences → (N,) weights; the averages take the batch in. ``weighed`` (N,) are those that get the
        weights, if the averages are of others."""
        self.mean.lerp_(confidence.mean(), self.RATE)
        # A batch of one has no unbiased variance.
        self.variance.lerp_(confidence.var(correction=min(self.correction, len(confidence) - 1)), self.RATE)
        variance = self.variance.clamp_min(torch.finfo(confidence.dtype).tiny)  # where all are equally confident
        below = ((confidence if weighed is None else weighed) - self.mean).clamp_max(0)
        return torch.exp(-(self.n_sigma**2) / 2 * below.square() / variance)
