"""Cross-entropies in float32: of labels, and of weighted pseudo-labels (eq. 4)."""

import torch.nn.functional as F
from torch import Tensor

__all__ = ["labelled_loss", "pseudo_loss", "targets"]


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
