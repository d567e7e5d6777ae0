"""Weights of pseudo-labels: by threshold (FixMatch), by consensus (NorMatch, eq. 3), by confidence (SoftMatch)."""

from typing import Literal

import torch
from torch import Tensor, nn

__all__ = ["AdaptiveWeights", "consensus_weights", "threshold_weights"]


def threshold_weights(p: Tensor, threshold: float) -> Tensor:
    """1 where the largest probability reaches the threshold, else 0. (N, K) → (N,)"""
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
    r"""SoftMatch's weights (arXiv:2301.10921), with half the standard deviation as in its published code.

    .. math:: w = \exp\left(-\frac{\min(c - μ, 0)^2}{2 (σ/2)^2}\right)

    for a confidence c, where μ and σ² are running averages of its mean and variance in a batch, including this one: 1
    for all that is surer than the average, less and less for the rest. What counts as sure grows with the network.
    SoftMatch averages the unbiased variance, N / (N − 1) of this one, which a batch of one does not have.
    """

    RATE = 0.001
    """Share of a new batch in the running averages."""

    mean: Tensor
    variance: Tensor

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(1 / classes))
        self.register_buffer("variance", torch.tensor(1.0))

    @torch.no_grad()
    def forward(self, confidence: Tensor) -> Tensor:
        """(N,) confidences → (N,) weights; the averages take the batch in."""
        self.mean.lerp_(confidence.mean(), self.RATE)
        self.variance.lerp_(confidence.var(correction=0), self.RATE)
        variance = self.variance.clamp_min(torch.finfo(confidence.dtype).tiny)  # where all are equally sure
        return torch.exp(-2 * (confidence - self.mean).clamp_max(0).square() / variance)
