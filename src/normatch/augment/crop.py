"""The resized crop of multi-crop views: a random part of the image, enlarged to its size."""

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["ResizedCrop"]

LEAST_AREA = 0.2
"""Least share of the image's area in a crop (SimCLR has 0.08, for larger images)."""


class ResizedCrop:
    """A crop of the image's own proportions whose area is uniform from a fifth to all of it, resized bilinearly."""

    def draw(self, n: int, generator: torch.Generator, device: torch.device) -> tuple[Tensor, ...]:
        """(3, n) uniform numbers: of the area and of the crop's two offsets."""
        return (torch.rand((3, n), generator=generator, device=device),)

    def apply(self, images: Tensor, uniform: Tensor) -> Tensor:
        n, _, h, w = images.shape
        side = (LEAST_AREA + (1 - LEAST_AREA) * uniform[0]).sqrt()
        centre = (2 * uniform[1:] - 1) * (1 - side)
        # Of the pixels' centres, from −1 to 1 over the image, as grid_sample takes them.
        y, x = (
            c[:, None] + side[:, None] * ((2 * torch.arange(m, device=images.device) + 1) / m - 1)
            for c, m in zip(centre, (h, w), strict=True)
        )
        grid = torch.stack([x[:, None, :].expand(n, h, w), y[:, :, None].expand(n, h, w)], 3)
        cropped = F.grid_sample(images.float(), grid, mode="bilinear", padding_mode="reflection", align_corners=False)
        return cropped.round().clamp(0, 255).to(images.dtype)
