"""Nearest-neighbour affine warps of a whole batch in Pillow's 16.16 fixed-point arithmetic, bit-identical to Pillow's.

A matrix (a, b, c, d, e, f) maps an output pixel to its source: x' = a·x + b·y + c, y' = d·x + e·y + f. Sources outside
the image are black.
"""

import math

import torch
from torch import Tensor

__all__ = ["IDENTITY", "Matrix", "rotation", "shear_x", "shear_y", "to_fixed", "translation", "warp"]

Matrix = tuple[float, float, float, float, float, float]

IDENTITY: Matrix = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)


def rotation(degrees: float, height: int, width: int) -> Matrix:
    """Counter-clockwise about the image's centre, with the roundings of ``Image.rotate``."""
    angle = -math.radians(degrees % 360.0)
    cosine, sine = round(math.cos(angle), 15), round(math.sin(angle), 15)
    x, y = width / 2, height / 2
    return (cosine, sine, cosine * -x + sine * -y + x, -sine, cosine, -sine * -x + cosine * -y + y)


def shear_x(amount: float) -> Matrix:
    """Shift each row by ``amount`` times its distance from the top."""
    return (1.0, amount, 0.0, 0.0, 1.0, 0.0)


def shear_y(amount: float) -> Matrix:
    """Shift each column by ``amount`` times its distance from the left border."""
    return (1.0, 0.0, 0.0, amount, 1.0, 0.0)


def translation(x: int, y: int) -> Matrix:
    """The output pixel (0, 0) comes from (x, y)."""
    return (1.0, 0.0, float(x), 0.0, 1.0, float(y))


def to_fixed(matrix: Matrix) -> list[int]:
    """The matrix in units of 1/65536, rounded as by Pillow, relative to pixel centres."""
    a, b, c, d, e, f = matrix
    centred = (a, b, c + a * 0.5 + b * 0.5, d, e, f + d * 0.5 + e * 0.5)
    return [math.floor(v * 65536.0 + 0.5) for v in centred]


def warp(images: Tensor, fixed: Tensor) -> Tensor:
    """Warps ``images`` (N, C, H, W), sides below 32768, each by its own row of ``fixed`` (N, 6) int32."""
    n, c, h, w = images.shape
    # Flat positions, because operations on short rows do not use a CPU's vector units well.
    position = torch.arange(h * w, dtype=torch.int32, device=images.device)
    y, x = position // w, position % w
    a, b, x0, d, e, y0 = fixed[:, :, None].unbind(1)
    from_x = (a * x).addcmul_(b, y).add_(x0).bitwise_right_shift_(16)
    from_y = (d * x).addcmul_(e, y).add_(y0).bitwise_right_shift_(16)
    near_x, near_y = from_x.clamp(0, w - 1), from_y.clamp(0, h - 1)
    inside = (near_x == from_x) & (near_y == from_y)
    source = near_y.mul_(w).add_(near_x).long()
    moved = images.reshape(n, c, h * w).gather(2, source[:, None].expand(-1, c, -1))
    return moved.mul_(inside[:, None]).view(n, c, h, w)
