"""The learning rate's path: a cosine that ends at a fifth of its start, no warm-up (FixMatch, Section 4.1)."""

import math

import torch
from torch import Tensor

__all__ = ["cosine"]


def cosine(step: Tensor, total: int) -> Tensor:
    """cos(7π/16 · step/total), a device scalar: the host never needs its value."""
    return torch.cos(step * (7 * math.pi / 16 / total))
