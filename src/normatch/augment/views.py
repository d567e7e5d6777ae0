"""The views of a batch by name: ``none``, ``weak`` and ``strong``, for images and for feature vectors."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from normatch.augment.cutout import CutoutParams, apply_cutout, settle_cutout
from normatch.augment.randaugment import (
    MAX_STRENGTH,
    Programs,
    apply_randaugment,
    build_programs,
    resolve,
    settle_choices,
)
from normatch.augment.vectors import (
    MaskParams,
    MixParams,
    NoiseParams,
    apply_mask,
    apply_mix,
    apply_noise,
    draw_mask,
    draw_mix,
    draw_noise,
)
from normatch.augment.weak import WeakParams, apply_weak, settle_weak
from normatch.errors import UserError

__all__ = [
    "KINDS",
    "AugmentConfig",
    "ImageNumbers",
    "ImageParams",
    "Numbers",
    "Params",
    "VectorParams",
    "Views",
    "check_kind",
]

KINDS: tuple[str, ...] = ("none", "weak", "strong")
"""The names of the views; ``strong`` starts with its own draw of the weak view."""

MAX_OPS = 10
"""Upper limit of ``ops``: FixMatch uses 2, each costs time, and a much larger number is most likely a mistake."""

OFF: dict[str, dict[str, float | None]] = {
    "images": {"flip": False, "pad": 0, "ops": 0, "max_strength": None, "cutout": 0},
    "feature vectors": {"noise": 0, "mix": 0, "mask": 0},
}
"""The augmentations of each kind of item, with the value that turns each off; None if there is no such value."""

STRONG_ALONE = ("ops", "max_strength", "cutout", "mix", "mask")
"""The augmentations that weak views do not have."""


@dataclass(frozen=True)
class AugmentConfig:
    """The augmentations. The defaults are FixMatch's."""

    flip: bool = True
    """Mirror images with probability ½. Switch it off if left and right matter, as in digits."""
    pad: int | None = None
    """Pixels of reflected border for random crops; by default an eighth of each side, rounded down; 0 is no crop."""
    ops: int = 2
    """RandAugment ops of a strong view, 0 to 10; each is applied with probability ½."""
    max_strength: int = MAX_STRENGTH
    """RandAugment strengths are drawn from 1 … max_strength-1 tenths of each op's range: 2 to 10."""
    cutout: float = 0.5
    """Sides of the grey hole of a strong view, as a share of the image's; 0 is no hole."""
    noise: float = 0.1
    """Feature vectors: standard deviation of the noise of both views, as a share of each dimension's scale."""
    mix: float = 0.0
    """Feature vectors: largest share that another sample of the batch may have in a strong view, at most ½."""
    mask: float = 0.3
    """Feature vectors: share of the dimensions that a strong view hides."""

    def check(self) -> None:
        """Raise UserError, naming the field and its range, if a number is out of range."""
        if self.pad is not None:
            _check("pad", self.pad, self.pad >= 0, "0 or more pixels, or None for an eighth of the side")
        _check("ops", self.ops, 0 <= self.ops <= MAX_OPS, f"0 to {MAX_OPS}")
        _check("max_strength", self.max_strength, 2 <= self.max_strength <= MAX_STRENGTH, f"2 to {MAX_STRENGTH}")
        _check("cutout", self.cutout, 0 <= self.cutout <= 1, "0 to 1")
        _check("noise", self.noise, 0 <= self.noise < float("inf"), "0 or more")
        _check("mix", self.mix, 0 <= self.mix <= 0.5, "0 to 0.5")
        _check("mask", self.mask, 0 <= self.mask <= 1, "0 to 1")

    def must_suit(self, *, images: bool) -> None:
        """Raise UserError if it asks for an augmentation of the other kind of item, which would do nothing.

        Neither a default does, nor the value that turns one off: recipes of digits, say, have no flips.
        """
        items, others = ("images", "feature vectors") if images else ("feature vectors", "images")
        for field, off in OFF[others].items():
            value = getattr(self, field)
            if value not in (getattr(AugmentConfig, field), off):
                raise UserError(
                    f"augment.{field} is {value}, which is for {others}, but the items are {items}: leave it out"
                )

    def must_show(self, kinds: Collection[str], method: str) -> None:
        """Raise UserError if it changes a kind of view that the method does not have, which would do nothing.

        As in :meth:`must_suit`, neither a default does, nor the value that turns an augmentation off.
        """
        off = OFF["images"] | OFF["feature vectors"]
        for field in STRONG_ALONE:
            value = getattr(self, field)
            if "strong" not in kinds and value not in (getattr(AugmentConfig, field), off[field]):
                raise UserError(
                    f"augment.{field} is {value}, which is for strong views, but method {method!r} has none: "
                    "leave it out, or choose another method"
                )


def _check(field: str, value: float, allowed: bool, remedy: str) -> None:
    if not allowed:
        raise UserError(f"augment.{field} is {value}: allowed is {remedy}")


class ImageParams(NamedTuple):
    """The parameters of one view of a batch of images; a stage that is None is left out."""

    weak: WeakParams | None = None
    randaugment: Programs | None = None
    cutout: CutoutParams | None = None


class VectorParams(NamedTuple):
    """The parameters of one view of a batch of feature vectors; a stage that is None is left out."""

    noise: NoiseParams | None = None
    mix: MixParams | None = None
    mask: MaskParams | None = None


class ImageNumbers(NamedTuple):
    """Uniform random numbers from which :class:`ImageParams` are computed, and the table of RandAugment programs."""

    weak: Tensor | None = None
    randaugment: Tensor | None = None
    cutout: Tensor | None = None
    programs: Programs | None = None


Params = ImageParams | VectorParams
Numbers = ImageNumbers | VectorParams


class Views:
    """Makes views of whole batches on any device.

    Three steps are separate: :meth:`numbers` draws random numbers, :meth:`settle` computes parameters from them, and
    :meth:`apply` applies these; :meth:`make` does the last two. All but the first are pure functions of tensors, with
    no host synchronisation and no shapes that depend on data, suited to ``torch.compile`` and CUDA graphs.
    :meth:`numbers` copies a small table to each new device; after that it can be captured too, with its generator
    registered.

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
        self.config.check()
        self.is_image = len(self.shape) == 3
        if self.is_image:
            self._check_image()
        elif len(self.shape) == 1:
            self._centre = torch.zeros(self.shape) if centre is None else centre
            self._scale = torch.ones(self.shape) if scale is None else scale
            for name, tensor in (("centre", self._centre), ("scale", self._scale)):
                if tuple(tensor.shape) != self.shape:
                    raise UserError(f"{name} has shape {tuple(tensor.shape)}: vectors of shape {self.shape} need that")
        else:
            raise UserError(f"samples of shape {self.shape} have no views: give images (C, H, W) or vectors (D,)")
        self._programs: dict[torch.device, Programs] = {}
        self._statistics: dict[torch.device, tuple[Tensor, Tensor]] = {}

    def numbers(self, kind: str, n: int, generator: torch.Generator, device: torch.device | str) -> Numbers:
        """The random numbers of one view of ``n`` samples; the generator lives on ``device``."""
        check_kind(kind)
        device = torch.device(device)
        return (self._image_numbers if self.is_image else self._draw_vector)(kind, n, generator, device)

    def settle(self, numbers: Numbers) -> Params:
        """The parameters of a view, from its random numbers."""
        if isinstance(numbers, VectorParams):
            return numbers
        config, size = self.config, self.shape[1:]
        weak, randaugment, cutout, programs = numbers
        chosen = None if randaugment is None else settle_choices(randaugment, config.max_strength)
        return ImageParams(
            None if weak is None else settle_weak(weak, self._pad, config.flip),
            None if chosen is None or programs is None else resolve(chosen, programs),
            None if cutout is None else settle_cutout(cutout, (size[0], size[1]), self._hole),
        )

    def draw(self, kind: str, n: int, generator: torch.Generator, device: torch.device | str) -> Params:
        """The parameters of one view of ``n`` samples; the generator lives on ``device``."""
        return self.settle(self.numbers(kind, n, generator, device))

    def apply(self, images: Tensor, params: Params) -> Tensor:
        """The view of ``images`` (N, \\*shape) that these parameters make."""
        if tuple(images.shape[1:]) != self.shape:
            raise ValueError(f"a batch of shape {tuple(images.shape)} given to views of samples {self.shape}")
        if isinstance(params, VectorParams):
            if params.noise is not None:
                images = apply_noise(images, params.noise)
            if params.mix is not None:
                images = apply_mix(images, params.mix)
            return images if params.mask is None else apply_mask(images, params.mask)
        if images.dtype != torch.uint8:
            raise TypeError(f"images of {images.dtype} given to views: they are made from torch.uint8")
        if params.weak is not None:
            images = apply_weak(images, params.weak)
        if params.randaugment is not None:
            images = apply_randaugment(images, params.randaugment)
        return images if params.cutout is None else apply_cutout(images, params.cutout)

    def make(self, images: Tensor, numbers: Numbers) -> Tensor:
        """The view of ``images`` (N, \\*shape) that these random numbers make."""
        return self.apply(images, self.settle(numbers))

    def __call__(self, kind: str, images: Tensor, generator: torch.Generator) -> Tensor:
        """Draws and applies one view of ``images`` (N, \\*shape)."""
        return self.apply(images, self.draw(kind, len(images), generator, images.device))

    def _check_image(self) -> None:
        channels, height, width = self.shape
        if channels not in (1, 3):
            raise UserError(f"images of {channels} channels have no views: give 1 (grey) or 3 (red, green, blue)")
        pad = self.config.pad
        if pad is not None and pad >= min(height, width):
            raise UserError(f"augment.pad is {pad}: allowed is less than the image's side, {min(height, width)}")
        self._pad = (height // 8, width // 8) if pad is None else (pad, pad)
        self._hole = (int(height * self.config.cutout), int(width * self.config.cutout))

    def _image_numbers(self, kind: str, n: int, generator: torch.Generator, device: torch.device) -> ImageNumbers:
        if kind == "none":
            return ImageNumbers()
        weak = torch.rand((3, n), generator=generator, device=device)
        if kind == "weak":
            return ImageNumbers(weak)
        if device not in self._programs:
            self._programs[device] = build_programs(self.shape[1], self.shape[2], device)
        ops = self.config.ops
        return ImageNumbers(
            weak,
            torch.rand((4, n, ops), generator=generator, device=device) if ops else None,
            torch.rand((2, n), generator=generator, device=device) if min(self._hole) else None,
            self._programs[device],
        )

    def _draw_vector(self, kind: str, n: int, generator: torch.Generator, device: torch.device) -> VectorParams:
        if kind == "none":
            return VectorParams()
        if device not in self._statistics:
            self._statistics[device] = (self._centre.to(device), self._scale.to(device))
        centre, scale = self._statistics[device]
        config, strong = self.config, kind == "strong"
        return VectorParams(
            draw_noise(n, config.noise, scale, generator, device),
            draw_mix(n, config.mix, generator, device) if strong and config.mix else None,
            draw_mask(n, config.mask, centre, generator, device) if strong else None,
        )


def check_kind(kind: str) -> None:
    """Raise UserError if there is no such view."""
    if kind not in KINDS:
        raise UserError(f"unknown view {kind!r}: choose from {', '.join(KINDS)}")
