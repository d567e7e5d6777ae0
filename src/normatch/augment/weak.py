"""The weak view: a random horizontal flip, then a random crop of the reflect-padded image, as one gather."""

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["WeakParams", "apply_weak", "settle_weak"]


class WeakParams(NamedTuple):
    """The offset of each sample's crop from the image's corner, and whether the image is mirrored first."""

    flip: Tensor  # (N,) bool
    top: Tensor  # (N,) int64, -pad … pad
    left: Tensor  # (N,) int64, -pad … pad


def settle_weak(uniform: Tensor, pad: tuple[int, int], flip: bool) -> WeakParams:
    """Flips (p = ½, or none) and crop offsets, uniform over the padding, from uniform numbers (3, N).

    Args:
        uniform: (3, N) numbers from 0 up to 1.
        pad: pixels of reflected border above and below, left and right.
        flip: whether to mirror at all.
    """
    return WeakParams(
        flip=uniform[0] < (0.5 if flip else 0.0),
        top=(uniform[1] * (2 * pad[0] + 1)).long() - pad[0],
        left=(uniform[2] * (2 * pad[1] + 1)).long() - pad[1],
    )


def apply_weak(images: Tensor, params: WeakParams) -> Tensor:
    """Flips and crops ``images`` (N, C, H, W); the result has the same shape.

    >>> image = torch.arange(3, dtype=torch.uint8).view(1, 1, 1, 3)
    >>> params = WeakParams(torch.tensor([False]), torch.tensor([0]), torch.tensor([-2]))
    >>> apply_weak(image, params).flatten().tolist()
    [2, 1, 0]
    """
    n, c, h, w = images.shape
    rows = _reflect(torch.arange(h, device=images.device) + params.top[:, None], h)
    columns = _reflect(torch.arange(w, device=images.device) + params.left[:, None], w)
    columns = torch.where(params.flip[:, None], w - 1 - columns, columns)
    source = ((rows * w)[:, :, None] + columns[:, None, :]).view(n, 1, h * w)
    return images.reshape(n, c, h * w).gather(2, source.expand(-1, c, -1)).view(n, c, h, w)


def _reflect(position: Tensor, side: int) -> Tensor:
    """Reflects positions outside ``0 … side-1`` at the border pixel, which is not repeated."""
    return (side - 1) - ((side - 1) - position.abs()).abs()
