"""The learning-rate schedule: a cosine without warm-up (FixMatch, Section 4.1)."""

import math

import torch
from torch import Tensor

__all__ = ["cosine"]


def cosine(step: Tensor, total: int, angle: float, power: float = 1.0) -> Tensor:
    """cos(angle · π · step/total) to the ``power``, as a scalar on the device; the host never reads it."""
    factor = torch.cos(step * (angle * math.pi / total))
    return factor if power == 1 else factor.clamp_min(0) ** power
