"""The weak view: a random horizontal flip, then a random crop of the reflect-padded image, as one gather."""

import torch
from torch import Tensor

from normatch.errors import UserError

__all__ = ["Weak", "weak_view"]


class Weak:
    """Flip and crop of images of this size; ``pad`` None is an eighth of each side, rounded down."""

    def __init__(self, size: tuple[int, ...], pad: int | None, flip: bool) -> None:
        height, width = size
        if pad is not None and pad >= min(height, width):
            raise UserError(f"augment.pad is {pad}: allowed is less than the image's side, {min(height, width)}")
        self.pad = (height // 8, width // 8) if pad is None else (pad, pad)
        self.flip = flip

    def draw(self, n: int, generator: torch.Generator, device: torch.device) -> tuple[Tensor, ...]:
        return (torch.rand((3, n), generator=generator, device=device),)

    def apply(self, images: Tensor, uniform: Tensor) -> Tensor:
        return weak_view(images, uniform, self.pad, self.flip)


def weak_view(images: Tensor, uniform: Tensor, pad: tuple[int, int], flip: bool) -> Tensor:
    """Flips (p = ½) and crops ``images`` (N, C, H, W); the result has the same shape.

    Args:
        images: the batch.
        uniform: (3, N) random numbers from 0 up to 1: of the flip and of the crop's two offsets, uniform over the
            padding.
        pad: pixels of reflected border above and below, left and right.
        flip: whether to mirror at all.

    >>> image = torch.arange(3, dtype=torch.uint8).view(1, 1, 1, 3)
    >>> weak_view(image, torch.tensor([[0.9], [0.0], [0.0]]), (0, 2), True).flatten().tolist()
    [2, 1, 0]
    """
    n, c, h, w = images.shape
    mirrored = uniform[0] < (0.5 if flip else 0.0)
    top = (uniform[1] * (2 * pad[0] + 1)).long() - pad[0]
    left = (uniform[2] * (2 * pad[1] + 1)).long() - pad[1]
    rows = _reflect(torch.arange(h, device=images.device) + top[:, None], h)
    columns = _reflect(torch.arange(w, device=images.device) + left[:, None], w)
    columns = torch.where(mirrored[:, None], w - 1 - columns, columns)
    source = ((rows * w)[:, :, None] + columns[:, None, :]).view(n, 1, h * w)
    return images.reshape(n, c, h * w).gather(2, source.expand(-1, c, -1)).view(n, c, h, w)


def _reflect(position: Tensor, side: int) -> Tensor:
    """Reflects positions outside ``0 … side-1`` at the border pixel, which is not repeated."""
    return (side - 1) - ((side - 1) - position.abs()).abs()
