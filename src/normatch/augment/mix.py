"""Mixing of samples with others of their batch, images and vectors alike."""

import torch
from torch import Tensor

__all__ = ["Mix"]


class Mix:
    """Moves each sample towards another of the batch, by a share that is uniform from 0 to ``most``."""

    def __init__(self, most: float) -> None:
        self.most = most

    def draw(self, n: int, generator: torch.Generator, device: torch.device) -> tuple[Tensor, ...]:
        """(n,) partners, a random permutation of the batch, and (n, 1) their shares."""
        partner = torch.rand(n, generator=generator, device=device).argsort()
        return partner, self.most * torch.rand((n, 1), generator=generator, device=device)

    def apply(self, samples: Tensor, partner: Tensor, share: Tensor) -> Tensor:
        if samples.dtype.is_floating_point:
            return torch.lerp(samples, samples[partner], share)
        mixed = torch.lerp(samples.float(), samples[partner].float(), share.view(-1, 1, 1, 1))
        return mixed.round().to(samples.dtype)
