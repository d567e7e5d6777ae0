"""Backbones without any weights: histograms of oriented gradients, and the input itself."""

import math

import torch
from torch import Tensor
from torch.nn import functional

from normatch.nets.backbone import Backbone, BackboneSpec, register

__all__ = ["HOG", "Identity"]

CELLS, ORIENTATIONS = 8, 9
"""Cells along each side of an image, and bins of half a turn, of the histograms."""

SIDE = 32
"""Larger images are averaged to this many pixels a side."""


class HOG(Backbone):
    """Histograms of oriented gradients (Dalal and Triggs 2005) of the mean over the channels: 8 × 8 cells of 9
    orientations, each gradient shared by the two nearest, normalised in blocks of 2 × 2 cells; 1,764 features."""

    size = (CELLS - 1) ** 2 * 4 * ORIENTATIONS

    def __init__(self) -> None:
        super().__init__(self.size)

    def forward(self, x: Tensor) -> Tensor:
        """Images (N, C, H, W) to features (N, 1764)."""
        grey = x.float().mean(1)
        n, height, width = grey.shape
        dy, dx = torch.zeros_like(grey), torch.zeros_like(grey)
        dy[:, 1:-1] = grey[:, 2:] - grey[:, :-2]
        dx[:, :, 1:-1] = grey[:, :, 2:] - grey[:, :, :-2]
        at = torch.atan2(dy, dx) % math.pi / math.pi * ORIENTATIONS
        low, upper = at.floor(), at - at.floor()
        rows, columns = (torch.arange(side, device=x.device) * CELLS // side for side in (height, width))
        cell = (rows[:, None] * CELLS + columns) * ORIENTATIONS
        length = (dx.square() + dy.square()).sqrt()  # torch.hypot has no translation to ONNX
        counts = grey.new_zeros(n, CELLS * CELLS * ORIENTATIONS)
        for bins, share in ((low, 1 - upper), (low + 1, upper)):
            into = (cell + bins.long() % ORIENTATIONS).flatten(1)
            counts = counts.scatter_add(1, into, (length * share).flatten(1))
        cells = counts.view(n, CELLS, CELLS, ORIENTATIONS)
        blocks = torch.cat([cells[:, i : CELLS - 1 + i, j : CELLS - 1 + j] for i in (0, 1) for j in (0, 1)], 3)
        norms: Tensor = torch.linalg.vector_norm(blocks, dim=3, keepdim=True)
        return (blocks / (norms + 1e-3)).flatten(1)


class Identity(Backbone):
    """No network at all: vectors as they are, or the pixels of an image, averaged to at most 32 × 32."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.size = tuple(min(SIDE, side) for side in shape[1:])
        super().__init__(shape[0] * math.prod(self.size))

    def forward(self, x: Tensor) -> Tensor:
        """Images (N, C, H, W) or vectors (N, D) to features."""
        if x.shape[2:] != self.size:
            height, width = self.size
            x = functional.adaptive_avg_pool2d(x, (height, width))
        return x.flatten(1)


register(
    BackboneSpec(
        name="hog",
        summary="histograms of oriented gradients, 1,764 features, no weights",
        sides=(8, 512),
        build=lambda shape, momentum: HOG(),
    )
)
register(
    BackboneSpec(
        name="identity",
        summary="no network: vectors, or at most 32 × 32 pixels, themselves",
        sides=(8, 512),
        vectors=True,
        build=lambda shape, momentum: Identity(shape),
    )
)
