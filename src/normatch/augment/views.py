"""The views of a batch by name: ``none``, ``weak`` and ``strong``, for images and for feature vectors."""

from typing import NamedTuple

import torch
from torch import Tensor

from normatch.augment.config import AugmentConfig
from normatch.augment.cutout import cut_out
from normatch.augment.randaugment import Programs, build_programs, randaugment
from normatch.augment.vectors import VectorNumbers, draw_mask, draw_mix, draw_noise, vector_view
from normatch.augment.weak import weak_view
from normatch.errors import UserError

__all__ = ["VIEWS", "ImageNumbers", "Numbers", "Views", "check_view"]

VIEWS: tuple[str, ...] = ("none", "weak", "strong")
"""The names of the views; ``strong`` starts with its own draw of the weak view."""


class ImageNumbers(NamedTuple):
    """Uniform random numbers of one view of a batch of images, and RandAugment's table; None: without that stage."""

    weak: Tensor | None = None
    randaugment: Tensor | None = None
    cutout: Tensor | None = None
    programs: Programs | None = None


Numbers = ImageNumbers | VectorNumbers


class Views:
    """Makes views of whole batches on any device.

    Two steps are separate: :meth:`numbers` draws random numbers, and :meth:`make` computes the view from them. The
    latter is a pure function of tensors, with no host synchronisation and no shapes that depend on data, suited to
    ``torch.compile`` and CUDA graphs. :meth:`numbers` copies a small table to each new device; after that it can be
    captured too, with its generator registered.

    Args:
        shape: of one sample: (C, H, W) for uint8 images, C = 1 or 3, or (D,) for float vectors.
        config: the augmentations.
        centre: (D,) the values that replace masked dimensions; vectors only, by default 0.
        scale: (D,) the unit of the noise, such as the standard deviations; vectors only, by default 1.

    >>> views = Views((1, 8, 8), AugmentConfig(flip=False))
    >>> images = torch.zeros(5, 1, 8, 8, dtype=torch.uint8)
    >>> views("strong", images, torch.Generator().manual_seed(0)).shape
    torch.Size([5, 1, 8, 8])
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        config: AugmentConfig | None = None,
        *,
        centre: Tensor | None = None,
        scale: Tensor | None = None,
    ) -> None:
        self.shape = tuple(shape)
        self.config = AugmentConfig() if config is None else config
        self._tables: dict[torch.device, Programs] = {}
        if len(self.shape) == 3:
            _, height, width = self.shape
            pad, share = self.config.pad, self.config.cutout
            if pad is not None and pad >= min(height, width):
                raise UserError(f"augment.pad is {pad}: allowed is less than the image's side, {min(height, width)}")
            self._pad = (height // 8, width // 8) if pad is None else (pad, pad)
            self._hole = (int(height * share), int(width * share))
        else:
            self._centre = torch.zeros(self.shape) if centre is None else centre
            self._scale = torch.ones(self.shape) if scale is None else scale

    def numbers(self, view: str, n: int, generator: torch.Generator, device: torch.device | str) -> Numbers:
        """The random numbers of one view of ``n`` samples; the generator lives on ``device``."""
        strong, config = view == "strong", self.config
        if len(self.shape) == 1:
            if view == "none":
                return VectorNumbers()
            return VectorNumbers(
                draw_noise(n, config.noise, self._scale, generator),
                draw_mix(n, config.mix, generator) if strong and config.mix else None,
                draw_mask(n, config.mask, self._centre, generator) if strong else None,
            )
        if view == "none":
            return ImageNumbers()
        weak = torch.rand((3, n), generator=generator, device=device)
        if not strong:
            return ImageNumbers(weak)
        return ImageNumbers(
            weak,
            torch.rand((4, n, config.ops), generator=generator, device=device) if config.ops else None,
            torch.rand((2, n), generator=generator, device=device) if min(self._hole) else None,
            self._programs(torch.device(device)),
        )

    def make(self, samples: Tensor, numbers: Numbers) -> Tensor:
        """The view of ``samples`` (N, \\*shape) that these random numbers make."""
        if isinstance(numbers, VectorNumbers):
            return vector_view(samples, numbers)
        if numbers.weak is not None:
            samples = weak_view(samples, numbers.weak, self._pad, self.config.flip)
        if numbers.randaugment is not None and numbers.programs is not None:
            samples = randaugment(samples, numbers.randaugment, self.config.max_strength, numbers.programs)
        return samples if numbers.cutout is None else cut_out(samples, numbers.cutout, self._hole)

    def __call__(self, view: str, samples: Tensor, generator: torch.Generator) -> Tensor:
        """Draws and makes one view of ``samples`` (N, \\*shape)."""
        return self.make(samples, self.numbers(view, len(samples), generator, samples.device))

    def _programs(self, device: torch.device) -> Programs:
        if device not in self._tables:
            self._tables[device] = build_programs(self.shape[1], self.shape[2], device)
        return self._tables[device]


def check_view(name: str) -> None:
    """Raise UserError if there is no such view."""
    if name not in VIEWS:
        raise UserError(f"unknown view {name!r}: choose from {', '.join(VIEWS)}")
