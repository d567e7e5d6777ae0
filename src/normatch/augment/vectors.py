"""Views of feature vectors (N, D): one of several copies, Gaussian noise, masking a share of the dimensions."""

import torch
from torch import Tensor

__all__ = ["Mask", "Noise", "Pick"]


class Pick:
    """Takes one of the copies ``first`` … ``last`` of each sample (N, copies, D): features of views made beforehand."""

    def __init__(self, first: int, last: int) -> None:
        self.first, self.count = first, last + 1 - first

    def draw(self, n: int, generator: torch.Generator, device: torch.device) -> tuple[Tensor, ...]:
        return (self.first + (torch.rand(n, generator=generator, device=device) * self.count).long(),)

    def apply(self, copies: Tensor, at: Tensor) -> Tensor:
        return copies[torch.arange(len(copies), device=copies.device), at]


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
