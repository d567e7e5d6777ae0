"""Cutout: a grey rectangle at a random place, clipped at the image's borders."""

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["GREY", "CutoutParams", "apply_cutout", "settle_cutout"]

GREY = 127
"""Grey level of the hole (FixMatch: half of white)."""


class CutoutParams(NamedTuple):
    """The half-open rectangle of each sample; parts outside the image have no effect."""

    top: Tensor  # (N,) int64
    left: Tensor  # (N,) int64
    bottom: Tensor  # (N,) int64
    right: Tensor  # (N,) int64


def settle_cutout(uniform: Tensor, size: tuple[int, int], hole: tuple[int, int]) -> CutoutParams:
    """Holes of ``hole`` (height, width) pixels with centres uniform over an image of ``size``, from numbers (2, N)."""
    top = (uniform[0] * size[0]).long() - hole[0] // 2
    left = (uniform[1] * size[1]).long() - hole[1] // 2
    return CutoutParams(top, left, top + hole[0], left + hole[1])


def apply_cutout(images: Tensor, params: CutoutParams) -> Tensor:
    """A copy of ``images`` (N, C, H, W) with the holes painted in, the same hole in all channels."""
    h, w = images.shape[2:]
    rows = _inside(h, params.top, params.bottom)
    columns = _inside(w, params.left, params.right)
    return torch.where((rows[:, :, None] & columns[:, None, :])[:, None], GREY, images)


def _inside(side: int, start: Tensor, stop: Tensor) -> Tensor:
    """(N, side) bool: which positions lie in each sample's half-open interval."""
    position = torch.arange(side, device=start.device)
    return (position >= start[:, None]) & (position < stop[:, None])
