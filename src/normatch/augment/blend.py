"""Pillow's four enhancers: a blend of each image with a duller copy of itself.

Brightness blends with black, Contrast with the mean grey, Color with the grey image, Sharpness with the smoothed one.
"""

import torch
from torch import Tensor

__all__ = ["BLACK", "GREY_IMAGE", "MEAN", "SMOOTH", "enhance", "split_factor"]

BLACK, MEAN, GREY_IMAGE, SMOOTH = (0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)
"""The images to blend with, as weights of mean, grey image and smoothed image."""


def split_factor(factor: float) -> tuple[float, float]:
    """A single-precision factor as a coarse plus a fine part, whose products with a grey level are both exact.

    Where the exact blend is a whole number, the level depends on the rounding of Pillow's product, which a compiler
    would change by fusing product and sum; with exact partial products, fusing changes nothing.
    """
    single = torch.tensor(factor, dtype=torch.float32)
    coarse = single.bfloat16().float()
    return float(coarse), float(single - coarse)


def enhance(images: Tensor, base: Tensor, factor: Tensor) -> Tensor:
    """Blends ``images`` (N, C, H, W) uint8, C = 1 or 3, with a dull copy: ⌊``dull + factor · (image - dull)``⌋.

    Args:
        images: the batch.
        base: (N, 3) float32, which dull image: ``BLACK``, ``MEAN``, ``GREY_IMAGE`` or ``SMOOTH``.
        factor: (N, 2) float32, the two parts of a factor from 0 to 1 (:func:`split_factor`); 1 changes nothing.
    """
    use_mean, use_grey, use_smooth = base[:, :, None, None, None].unbind(1)
    coarse, fine = factor[:, :, None, None, None].unbind(1)
    levels = images.float()
    grey = _grey(levels)
    # Weights of 0 and 1 and in-place operations, because torch.where and newly allocated memory are slower on a CPU.
    dull = _smooth(levels).mul_(use_smooth).add_(grey * use_grey).add_(_mean(grey) * use_mean)
    difference = levels.sub_(dull)
    return (difference * coarse).addcmul_(difference, fine).add_(dull).to(torch.uint8)


def _grey(levels: Tensor) -> Tensor:
    """(N, 1, H, W) ITU-R 601 luma in Pillow's 16-bit weights; every value fits the 24 bits of a float exactly."""
    if levels.shape[1] == 1:
        return levels
    red, green, blue = levels[:, :, None].unbind(1)
    return ((red * 19595 + green * 38470 + blue * 7471 + 32768) * (1 / 65536)).floor()


def _mean(grey: Tensor) -> Tensor:
    """(N, 1, 1, 1) the mean level, rounded half up."""
    pixels = grey.shape[2] * grey.shape[3]
    total = grey.sum((2, 3), keepdim=True, dtype=torch.float64).long()
    return ((total + pixels // 2) // pixels).float()


def _smooth(levels: Tensor) -> Tensor:
    """3×3 smoothing with weights 1 around a 5, divided by 13, rounded; border pixels are unchanged.

    Thirteenths are never halfway between two levels, so float rounding cannot change the result.
    """
    rows = (levels[:, :, :-2] + levels[:, :, 1:-1]).add_(levels[:, :, 2:])
    around = (rows[..., :-2] + rows[..., 1:-1]).add_(rows[..., 2:])
    inner = around.add_(levels[:, :, 1:-1, 1:-1], alpha=4).mul_(1 / 13).add_(0.5).floor_()
    smooth = levels.clone()
    smooth[:, :, 1:-1, 1:-1] = inner
    return smooth
