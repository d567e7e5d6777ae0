"""3×3 convolutions of maps of 2×2 or 4×4 pixels as a few matrix products, for CPUs.

Maps are stored pixel by pixel, (H, W, N, C) contiguous: a transform of whole maps is then a matrix product from the
left, and each pixel of the batch is a matrix (N, C), which kernels multiply from the right.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d, pad

__all__ = ["Elementwise", "convolve_images", "convolve_maps", "max_pool", "normalise_maps"]

Elementwise = Callable[[Tensor], Tensor]

POINTS = (0.0, 0.75, -0.75, 1.5, -1.5)
"""Interpolation points, besides infinity: with them the error is 2.7 times that of a plain convolution (5.5 times with
0, ±1, ±2)."""


def convolve_maps(maps: Tensor, weight: Tensor) -> Tensor:
    r"""A 3×3 convolution with zero padding of maps (S, S, N, I) and a kernel (O, I, 3, 3) to maps (S, S, N, O).

    S is 2 or 4, and 9/16 or 36/100 of the products are needed. Along one axis, inputs x and taps w give the outputs
    :math:`y = A (Bx \odot Gw)` with constant matrices (Winograd 1980; Lavin and Gray 2015, arXiv:1509.09308); along
    two axes the same holds with Kronecker squares. The columns of B for the padding are left out.
    """
    h, w, n, i = maps.shape
    o = len(weight)
    outputs, inputs, taps = SINGLE[h] if maps.dtype == torch.float32 else (m.to(maps.dtype) for m in MATRICES[h])
    # The kernel is copied to an order that makes the products of the backward pass fast too.
    kernel = (taps @ weight.permute(2, 3, 1, 0).reshape(9, i * o)).view(-1, i, o)
    points = (inputs @ maps.view(h * w, n * i)).view(-1, n, i)
    return (outputs @ (points @ kernel).view(-1, n * o)).view(h, w, n, o)


def convolve_images(images: Tensor, weight: Tensor) -> Tensor:
    """A 3×3 convolution with zero padding of images (N, I, H, W) and a kernel (O, I, 3, 3) to maps (H, W, N, O)."""
    n, i, h, w = images.shape
    windows = pad(images.permute(1, 2, 3, 0), (0, 0, 1, 1, 1, 1)).unfold(1, 3, 1).unfold(2, 3, 1)
    taps = windows.permute(0, 4, 5, 1, 2, 3).reshape(i * 9, h * w * n)
    return (taps.t() @ weight.flatten(1).t().contiguous()).view(h, w, n, -1)


def normalise_maps(maps: Tensor, norm: nn.BatchNorm2d, then: Elementwise) -> Tensor:
    """Batch normalisation of maps (H, W, N, C), then the elementwise function ``then``, which may work in place."""
    # A view as H images of W×N pixels in channels-last order, for which torch's kernels are fast.
    return then(norm(maps.permute(0, 3, 1, 2))).permute(0, 2, 3, 1)


def max_pool(maps: Tensor, then: Elementwise) -> Tensor:
    """Maxima of 2×2 pixels of maps (H, W, N, C) with even sides, then ``then`` as in :func:`normalise_maps`."""
    h, w, n, c = maps.shape
    # A view as H/2 images of two rows with N·C channels each, in channels-last order.
    y = then(max_pool2d(maps.view(h // 2, 2, w, n * c).permute(0, 3, 1, 2), 2))
    return y.permute(0, 2, 3, 1).view(h // 2, w // 2, n, c)


def _axis_of_2() -> tuple[Tensor, Tensor, Tensor]:
    """A, B, G for two pixels, from the products (x₀ + x₁) w₁, x₁ (w₂ − w₁) and x₀ (w₀ − w₁)."""
    outputs = [[1, 1, 0], [1, 0, 1]]
    inputs = [[1, 1], [0, 1], [1, 0]]
    taps = [[0, 1, 0], [0, -1, 1], [1, -1, 0]]
    return torch.tensor(outputs).double(), torch.tensor(inputs).double(), torch.tensor(taps).double()


def _axis_of_4() -> tuple[Tensor, Tensor, Tensor]:
    """A, B, G for four pixels: the transpose of multiplying two polynomials by their values at six points."""
    inputs = torch.linalg.inv(_powers(6)).t()
    scale = inputs.abs().amax(1, keepdim=True)
    return _powers(4).t(), (inputs / scale)[:, 1:-1], _powers(3) * scale


def _powers(n: int) -> Tensor:
    """(6, n): evaluates a polynomial of n coefficients at POINTS and at infinity (its last coefficient)."""
    finite = torch.tensor(POINTS, dtype=torch.float64)[:, None] ** torch.arange(n)
    return torch.cat([finite, torch.eye(n, dtype=torch.float64)[-1:]])


MATRICES = {
    side: tuple(torch.kron(matrix, matrix) for matrix in axis) for side, axis in ((2, _axis_of_2()), (4, _axis_of_4()))
}
"""A, B and G of both axes, by the side of a map, in double precision."""
SINGLE = {side: tuple(matrix.float() for matrix in matrices) for side, matrices in MATRICES.items()}
