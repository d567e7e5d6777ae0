"""Weights of pseudo-labels: by threshold (FixMatch) and by consensus (NorMatch, eq. 3)."""

from typing import Literal

import torch
from torch import Tensor

__all__ = ["consensus_weights", "threshold_weights"]


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
