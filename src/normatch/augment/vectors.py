"""Views of feature vectors (N, D): Gaussian noise, and the masking of a share of the dimensions."""

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["MaskParams", "NoiseParams", "apply_mask", "apply_noise", "draw_mask", "draw_noise"]


class NoiseParams(NamedTuple):
    """What is added to each sample."""

    noise: Tensor  # (N, D) float


class MaskParams(NamedTuple):
    """Which dimensions each sample loses, and what stands in their place."""

    masked: Tensor  # (N, D) bool
    centre: Tensor  # (D,) float


def draw_noise(
    n: int, sigma: float, scale: Tensor, generator: torch.Generator, device: torch.device | str
) -> NoiseParams:
    """Draws normal noise of standard deviation ``sigma`` · ``scale``, the latter (D,) on ``device``."""
    normal = torch.randn((n, len(scale)), generator=generator, device=device, dtype=scale.dtype)
    return NoiseParams(normal * (sigma * scale))


def draw_mask(
    n: int, share: float, centre: Tensor, generator: torch.Generator, device: torch.device | str
) -> MaskParams:
    """Draws exactly ``round(share · D)`` dimensions a sample; in their place comes ``centre`` (D,), on ``device``."""
    dimensions = len(centre)
    order = torch.rand((n, dimensions), generator=generator, device=device).argsort(1)
    return MaskParams(order < round(share * dimensions), centre)


def apply_noise(vectors: Tensor, params: NoiseParams) -> Tensor:
    """Adds the noise to ``vectors`` (N, D)."""
    return vectors + params.noise


def apply_mask(vectors: Tensor, params: MaskParams) -> Tensor:
    """Puts the centre in the place of masked dimensions of ``vectors`` (N, D)."""
    return torch.where(params.masked, params.centre, vectors)
