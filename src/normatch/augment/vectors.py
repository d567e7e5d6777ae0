"""Views of feature vectors (N, D): Gaussian noise, mixing with another sample, masking a share of the dimensions."""

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = [
    "MaskParams",
    "MixParams",
    "NoiseParams",
    "apply_mask",
    "apply_mix",
    "apply_noise",
    "draw_mask",
    "draw_mix",
    "draw_noise",
]


class NoiseParams(NamedTuple):
    """The noise to add to each sample."""

    noise: Tensor  # (N, D) float


class MixParams(NamedTuple):
    """The sample of the batch that each sample is mixed with, and its share in the mixture."""

    partner: Tensor  # (N,) int64
    share: Tensor  # (N, 1) float


class MaskParams(NamedTuple):
    """The dimensions that are masked in each sample, and the values that replace them."""

    masked: Tensor  # (N, D) bool
    centre: Tensor  # (D,) float


def draw_noise(
    n: int, sigma: float, scale: Tensor, generator: torch.Generator, device: torch.device | str
) -> NoiseParams:
    """Draws normal noise of standard deviation ``sigma`` · ``scale``, the latter (D,) on ``device``."""
    normal = torch.randn((n, len(scale)), generator=generator, device=device, dtype=scale.dtype)
    return NoiseParams(normal * (sigma * scale))


def draw_mix(n: int, most: float, generator: torch.Generator, device: torch.device | str) -> MixParams:
    """Draws partners (a random permutation of the batch) and their shares, uniform from 0 to ``most``."""
    partner = torch.rand(n, generator=generator, device=device).argsort()
    return MixParams(partner, most * torch.rand((n, 1), generator=generator, device=device))


def draw_mask(
    n: int, share: float, centre: Tensor, generator: torch.Generator, device: torch.device | str
) -> MaskParams:
    """Draws exactly ``round(share · D)`` dimensions per sample, to be replaced by ``centre`` (D,), on ``device``."""
    dimensions = len(centre)
    order = torch.rand((n, dimensions), generator=generator, device=device).argsort(1)
    return MaskParams(order < round(share * dimensions), centre)


def apply_noise(vectors: Tensor, params: NoiseParams) -> Tensor:
    """Adds the noise to ``vectors`` (N, D)."""
    return vectors + params.noise


def apply_mix(vectors: Tensor, params: MixParams) -> Tensor:
    """Moves each of ``vectors`` (N, D) towards its partner by its share of the way."""
    return torch.lerp(vectors, vectors[params.partner], params.share)


def apply_mask(vectors: Tensor, params: MaskParams) -> Tensor:
    """Replaces the masked dimensions of ``vectors`` (N, D) by the centre."""
    return torch.where(params.masked, params.centre, vectors)
