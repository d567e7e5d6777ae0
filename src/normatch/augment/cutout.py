"""Cutout: a grey rectangle at a random place, clipped at the image's borders."""

import torch
from torch import Tensor

__all__ = ["Cutout", "cut_out"]

GREY = 127
"""Grey level of the hole (FixMatch: half of white)."""


class Cutout:
    """A hole in images of this size whose sides are a share of theirs, rounded down."""

    def __init__(self, size: tuple[int, ...], share: float) -> None:
        self.hole = (int(size[0] * share), int(size[1] * share))

    def draw(self, n: int, generator: torch.Generator, device: torch.device) -> tuple[Tensor, ...]:
        return (torch.rand((2, n), generator=generator, device=device),)

    def apply(self, images: Tensor, uniform: Tensor) -> Tensor:
        return cut_out(images, uniform, self.hole)


def cut_out(images: Tensor, uniform: Tensor, hole: tuple[int, int]) -> Tensor:
    """A copy of ``images`` (N, C, H, W) with a hole in each, the same in all channels.

    Args:
        images: the batch.
        uniform: (2, N) random numbers from 0 up to 1: the hole's centre, uniform over the image.
        hole: its height and width in pixels.
    """
    rows, columns = (
        _inside(side, (centre * side).long() - size // 2, size)
        for side, centre, size in zip(images.shape[2:], uniform, hole, strict=True)
    )
    return torch.where((rows[:, :, None] & columns[:, None, :])[:, None], GREY, images)


def _inside(side: int, start: Tensor, size: int) -> Tensor:
    """(N, side) bool: which positions lie in each sample's interval of ``size`` pixels."""
    position = torch.arange(side, device=start.device)
    return (position >= start[:, None]) & (position < start[:, None] + size)
