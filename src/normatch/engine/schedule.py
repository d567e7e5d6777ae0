"""The learning rate's path: a cosine, no warm-up (FixMatch, Section 4.1)."""

import math

import torch
from torch import Tensor

__all__ = ["cosine"]


def cosine(step: Tensor, total: int, angle: float) -> Tensor:
    """cos(angle · π · step/total), a device scalar: the host never needs its value."""
    return torch.cos(step * (angle * math.pi / total))
