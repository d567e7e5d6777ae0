"""The views of a batch by name, for images and for feature vectors: each is a sequence of stages.

A method asks for views by name (:data:`VIEWS`). A new one is a line there; if it needs a stage of its own, that is a
:class:`Stage` in :data:`STAGES`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from normatch.augment.config import AugmentConfig
from normatch.augment.crop import ResizedCrop
from normatch.augment.cutout import Cutout
from normatch.augment.mix import Mix
from normatch.augment.randaugment import RandAugment
from normatch.augment.rotate import Rotate
from normatch.augment.vectors import Mask, Noise, Pick
from normatch.augment.weak import Weak
from normatch.errors import UserError

__all__ = ["STAGES", "VIEWS", "Numbers", "Samples", "Stage", "Views", "check_view"]

VIEWS: dict[str, tuple[str, ...]] = {
    "none": ("pick-plain",),
    "weak": ("weak", "pick-weak", "noise"),
    "strong": ("weak", "randaugment", "cutout", "pick-strong", "noise", "mix-vectors", "mask"),
    "rotated": ("weak", "randaugment", "cutout", "rotate"),
    "crop": ("weak", "crop", "randaugment"),
    "mixed": ("weak", "pick-weak", "noise", "mix"),
}
"""The stages of each view, in order; images and vectors each take those that are for them."""

Numbers = dict[str, tuple[Any, ...]]
"""The random numbers, and tables, of each stage of one view of a batch."""


class Stage(Protocol):
    """A part of a view: random numbers, and a pure function of samples and these numbers."""

    def draw(self, n: int, generator: torch.Generator, device: torch.device) -> tuple[Any, ...]:
        """The random numbers of ``n`` samples; the generator lives on ``device``."""

    def apply(self, samples: Tensor, *numbers: Any) -> Tensor:
        """The samples (N, \\*shape), changed: no host synchronisation, no shape that depends on data."""


class Samples(NamedTuple):
    """What a stage may know of the samples when it is built."""

    shape: tuple[int, ...]
    """(C, H, W) of uint8 images, C = 1 or 3, or (D,) of float vectors."""
    config: AugmentConfig
    centre: Tensor
    """(D,) the values that replace masked dimensions; vectors only."""
    scale: Tensor
    """(D,) the unit of the noise, such as the standard deviations; vectors only."""
    copies: int
    """Of a bank of features (N, 1 + 2 · copies, D): the plain image, weak copies, strong copies; 0 for none."""

    @property
    def images(self) -> bool:
        return len(self.shape) == 3


STAGES: dict[str, Callable[[Samples], Stage | None]] = {
    "weak": lambda s: Weak(s.shape[1:], s.config.pad, s.config.flip) if s.images else None,
    "crop": lambda s: ResizedCrop() if s.images else None,
    "randaugment": lambda s: (
        RandAugment(s.shape[1:], s.config.ops, s.config.max_strength) if s.images and s.config.ops else None
    ),
    "cutout": lambda s: (
        Cutout(s.shape[1:], s.config.cutout) if s.images and min(s.shape[1:]) * s.config.cutout >= 1 else None
    ),
    "rotate": lambda s: Rotate() if s.images else None,
    "pick-plain": lambda s: Pick(0, 0) if s.copies else None,
    "pick-weak": lambda s: Pick(1, s.copies) if s.copies else None,
    "pick-strong": lambda s: Pick(s.copies + 1, 2 * s.copies) if s.copies else None,
    "noise": lambda s: None if s.images else Noise(s.config.noise, s.scale),
    "mix": lambda s: Mix(0.5),
    "mix-vectors": lambda s: Mix(s.config.mix) if not s.images and s.config.mix else None,
    "mask": lambda s: None if s.images else Mask(s.config.mask, s.centre),
}
"""How to build each stage; None where it is not for these samples, or turned off."""


class Views:
    """Makes views of whole batches on any device.

    Two steps are separate: :meth:`numbers` draws random numbers, and :meth:`make` computes the view from them. The
    latter is a pure function of tensors, suited to ``torch.compile`` and CUDA graphs. :meth:`numbers` copies a small
    table to each new device; after that it can be captured too, with its generator registered.

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
        copies: int = 0,
    ) -> None:
        config = AugmentConfig() if config is None else config
        centre, scale = (
            (torch.zeros(shape) if centre is None else centre),
            (torch.ones(shape) if scale is None else scale),
        )
        samples = Samples(tuple(shape), config, centre, scale, copies)
        built = {name: build(samples) for name, build in STAGES.items()}
        self._stages = {name: stage for name, stage in built.items() if stage is not None}

    def numbers(self, view: str, n: int, generator: torch.Generator, device: torch.device | str) -> Numbers:
        """The random numbers of one view of ``n`` samples; the generator lives on ``device``."""
        device = torch.device(device)
        return {name: self._stages[name].draw(n, generator, device) for name in VIEWS[view] if name in self._stages}

    def make(self, samples: Tensor, numbers: Numbers) -> Tensor:
        """The view of ``samples`` (N, \\*shape) that these random numbers make."""
        for name, drawn in numbers.items():
            samples = self._stages[name].apply(samples, *drawn)
        return samples

    def __call__(self, view: str, samples: Tensor, generator: torch.Generator) -> Tensor:
        """Draws and makes one view of ``samples`` (N, \\*shape)."""
        return self.make(samples, self.numbers(view, len(samples), generator, samples.device))


def check_view(name: str) -> None:
    """Raise UserError if there is no such view."""
    if name not in VIEWS:
        raise UserError(f"unknown view {name!r}: choose from {', '.join(VIEWS)}")
