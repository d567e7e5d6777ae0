"""Ops that map each grey level to another, per sample and channel: Posterize, Solarize, AutoContrast, Equalize.

They are computed for the 256 levels and looked up or, if an image has fewer pixels than that, computed on the pixels
themselves.
"""

import torch
from torch import Tensor

__all__ = ["AUTOCONTRAST", "EQUALIZE", "LEVELS", "NO_CURVE", "remap"]

LEVELS = 256

NO_CURVE, AUTOCONTRAST, EQUALIZE = range(3)
"""Values of ``curve`` in :func:`remap`: the maps that depend on the image, or none."""


def remap(images: Tensor, mask: Tensor, highest: Tensor, curve: Tensor) -> Tensor:
    """Maps the levels of ``images`` (N, C, H, W) uint8 to others, each sample by its own rule.

    Args:
        images: the batch.
        mask: (N,) uint8, the bits that Posterize keeps; 255 changes nothing.
        highest: (N,) uint8, the last level that Solarize does not invert; 255 changes nothing.
        curve: (N,) int, ``NO_CURVE``, ``AUTOCONTRAST`` or ``EQUALIZE``; the latter two replace the former rules.
    """
    n, c, h, w = images.shape
    pixels = images.reshape(n, c, h * w)
    mask, highest, curve = mask[:, None, None], highest[:, None, None], curve[:, None, None]
    # As int, because code compiled for a CPU by torch 2.13 finds wrong minima of uint8 (pytorch issue 191499).
    low, high = torch.aminmax(pixels.int(), dim=2, keepdim=True)
    # Equalize's step is (pixels not of the highest level) // 255: with fewer pixels than levels it changes nothing,
    # and no histogram is needed.
    direct = h * w < LEVELS
    levels = pixels if direct else torch.arange(LEVELS, dtype=torch.uint8, device=images.device)

    inverted = (levels > highest).to(torch.uint8).neg_()  # 0 or 255, and level ^ 255 is 255 - level
    table = (levels & mask).bitwise_xor_(inverted)
    table = _autocontrast(table, low, high, (curve == AUTOCONTRAST) & (high > low))
    if direct:
        return table.view(n, c, h, w)

    index = pixels.long()
    equal, step = _equalize(index, high)
    table = torch.where((curve == EQUALIZE) & (step > 0), equal, table)
    return table.gather(2, index).view(n, c, h, w)


def _autocontrast(levels: Tensor, low: Tensor, high: Tensor, wanted: Tensor) -> Tensor:
    """Stretches low … high to 0 … 255 where ``wanted``: ``int(level * scale - low * scale)`` in double precision.

    Where the exact value is whole, the level depends on Pillow's roundings of the two products, which a compiler would
    change by fusing product and sum. Splitting ``scale`` in two makes each partial product exact: fused or not, their
    sum is the product rounded once. Levels outside low … high do not occur; their values are meaningless.
    """
    scale = torch.full_like(low, 255, dtype=torch.float64) / (high - low).clamp(min=1)
    scale = torch.where(wanted, scale, 1.0)
    coarse = scale.float().double()
    fine = scale - coarse
    start = torch.where(wanted, low * coarse + low * fine, 0.0)
    position = levels.double()
    # In place: these are the largest tensors here, and on a CPU allocating new memory costs more than the arithmetic.
    return (position * coarse).addcmul_(position, fine).sub_(start).to(torch.uint8)


def _equalize(index: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """The equalising table (N, C, 256) and Pillow's integer step (N, C, 1); a step of 0 means no change."""
    n, c, pixels = index.shape
    one = torch.ones((), dtype=torch.int32, device=index.device)
    counts = torch.zeros((n, c, LEVELS), dtype=torch.int32, device=index.device)
    counts = counts.scatter_add(2, index, one.expand(n, c, pixels))
    step = (pixels - counts.gather(2, high.long())) // 255
    below = counts.cumsum(2, dtype=torch.int32).sub_(counts)
    table = below.add_(step // 2).floor_divide_(step.clamp(min=1))
    return table.clamp_(max=255).to(torch.uint8), step
