"""Embeddings on the unit sphere, and losses on their similarities."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["Projection", "log_similarities", "product", "similarity_loss"]


class Projection(nn.Module):
    """Features (N, D) to unit vectors (N, dim) in float32, by two layers; the first has D units or ``hidden``."""

    def __init__(self, features: int, dim: int, hidden: int | None = None) -> None:
        super().__init__()
        width = hidden or features
        self.layers = nn.Sequential(nn.Linear(features, width), nn.ReLU(), nn.Linear(width, dim))

    def forward(self, z: Tensor) -> Tensor:
        return F.normalize(self.layers(z).float(), dim=1)


def product(a: Tensor, b: Tensor) -> Tensor:
    """The matrix product in float32, also under autocast: bfloat16 has three digits."""
    with torch.autocast(a.device.type, enabled=False):
        return a.float() @ b.float()


def log_similarities(queries: Tensor, keys: Tensor, temperature: float, known: Tensor | None = None) -> Tensor:
    """The log-softmax (N, M) of queries (N, D) · keys (M, D) / T; keys that are not ``known`` (M,) are left out."""
    scores = product(queries, keys.T) / temperature
    if known is not None:
        scores = scores.masked_fill(~known, torch.finfo(scores.dtype).min)
    return scores.log_softmax(1)


def similarity_loss(similarities: Tensor, target: Tensor) -> Tensor:
    """Mean H(target, similarities): both (N, M), the latter logarithms; rows of the target sum to 1.

    With the identity as target it is InfoNCE.
    """
    return -(target * similarities).sum(1).mean()
