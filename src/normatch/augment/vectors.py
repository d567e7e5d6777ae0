"""Views of feature vectors (N, D): Gaussian noise, and masking a share of the dimensions."""

import torch
from torch import Tensor

__all__ = ["Mask", "Noise"]


class Noise:
    """Adds normal noise of standard deviation ``sigma`` · ``scale`` (D,)."""

    def __init__(self, sigma: float, scale: Tensor) -> None:
        self.sigma, self.scale = sigma, scale

    def draw(self, n: int, generator: torch.Generator, device: torch.device) -> tuple[Tensor, ...]:
        normal = torch.randn((n, len(self.scale)), generator=generator, device=device, dtype=self.scale.dtype)
        return (normal * (self.sigma * self.scale),)

    def apply(self, vectors: Tensor, noise: Tensor) -> Tensor:
        return vectors + noise


class Mask:
    """Replaces exactly ``round(share · D)`` dimensions of each sample by ``centre`` (D,)."""

    def __init__(self, share: float, centre: Tensor) -> None:
        self.share, self.centre = share, centre

    def draw(self, n: int, generator: torch.Generator, device: torch.device) -> tuple[Tensor, ...]:
        order = torch.rand((n, len(self.centre)), generator=generator, device=device).argsort(1)
        return (order < round(self.share * len(self.centre)),)

    def apply(self, vectors: Tensor, masked: Tensor) -> Tensor:
        return torch.where(masked, self.centre, vectors)
