"""Views of feature vectors (N, D): Gaussian noise, mixing with another sample, masking a share of the dimensions."""

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["VectorNumbers", "draw_mask", "draw_mix", "draw_noise", "vector_view"]


class VectorNumbers(NamedTuple):
    """The random numbers of one view of a batch of feature vectors; a stage that is None is left out."""

    noise: Tensor | None = None
    """(N, D) the noise to add."""
    mix: tuple[Tensor, Tensor] | None = None
    """(N,) the sample of the batch that each is mixed with, and (N, 1) its share in the mixture."""
    mask: tuple[Tensor, Tensor] | None = None
    """(N, D) which dimensions are masked, and (D,) the values that replace them."""


def draw_noise(n: int, sigma: float, scale: Tensor, generator: torch.Generator) -> Tensor:
    """Normal noise (n, D) of standard deviation ``sigma`` · ``scale`` (D,)."""
    normal = torch.randn((n, len(scale)), generator=generator, device=scale.device, dtype=scale.dtype)
    return normal * (sigma * scale)


def draw_mix(n: int, most: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Partners (a random permutation of the batch) and their shares, uniform from 0 to ``most``."""
    partner = torch.rand(n, generator=generator, device=generator.device).argsort()
    return partner, most * torch.rand((n, 1), generator=generator, device=generator.device)


def draw_mask(n: int, share: float, centre: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Exactly ``round(share · D)`` dimensions of each sample, to be replaced by ``centre`` (D,)."""
    order = torch.rand((n, len(centre)), generator=generator, device=centre.device).argsort(1)
    return order < round(share * len(centre)), centre


def vector_view(vectors: Tensor, numbers: VectorNumbers) -> Tensor:
    """The view of ``vectors`` (N, D): with noise, moved towards another sample, masked."""
    if numbers.noise is not None:
        vectors = vectors + numbers.noise
    if numbers.mix is not None:
        partner, share = numbers.mix
        vectors = torch.lerp(vectors, vectors[partner], share)
    if numbers.mask is not None:
        masked, centre = numbers.mask
        vectors = torch.where(masked, centre, vectors)
    return vectors
