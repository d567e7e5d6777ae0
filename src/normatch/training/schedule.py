"""The learning-rate schedule: a cosine without warm-up (FixMatch, Section 4.1)."""

import math

import torch
from torch import Tensor

__all__ = ["cosine"]


def cosine(step: Tensor, total: int, angle: float) -> Tensor:
    """cos(angle · π · step/total) as a scalar on the device; the host never reads it."""
    return torch.cos(step * (angle * math.pi / total))
