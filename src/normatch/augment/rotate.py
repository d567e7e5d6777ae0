"""Rotation by quarter turns: of four images in a row, the first stays, the others turn by 90°, 180° and 270°."""

import torch
from torch import Tensor

from normatch.errors import UserError

__all__ = ["Rotate", "quarter_turns"]


def quarter_turns(n: int, device: torch.device) -> Tensor:
    """(n,) the quarter turns of the view ``rotated``: 0, 1, 2, 3, 0, …

    A batch comes in random order, so this is as random as a draw, and exactly balanced.
    """
    return torch.arange(n, device=device) % 4


class Rotate:
    """Turns square images counter-clockwise, as ``torch.rot90`` does."""

    def draw(self, n: int, generator: torch.Generator, device: torch.device) -> tuple[Tensor, ...]:
        return ()

    def apply(self, images: Tensor) -> Tensor:
        if images.shape[2] != images.shape[3]:
            raise UserError(f"images of {images.shape[2]}×{images.shape[3]} pixels cannot be rotated: set --image-size")
        turned = images.clone()
        for turns in (1, 2, 3):
            turned[turns::4] = images[turns::4].rot90(turns, (2, 3))
        return turned
