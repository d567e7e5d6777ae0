"""Consistency of two predictions: the mean squared error of probabilities, and the Kullback-Leibler divergence."""

import torch.nn.functional as F
from torch import Tensor

__all__ = ["divergence", "squared_error"]


def squared_error(logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """1/NK Σ w · ‖p − target‖²: logits and target (N, K), weight (N,). Zero weights count in the mean."""
    error = (logits.float().softmax(1) - target).square().mean(1)
    return (error if weight is None else weight * error).mean()


def divergence(logits: Tensor, target: Tensor) -> Tensor:
    """1/N Σ KL(target ‖ p): logits and target (N, K)."""
    return F.kl_div(F.log_softmax(logits.float(), 1), target, reduction="batchmean")
