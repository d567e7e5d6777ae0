"""RandAugment as in FixMatch: a few of 14 ops, drawn per sample, all computed by the same few batch kernels.

Every op is a special case of one program: an affine warp, a table of levels, a blend with a duller image, each of which
may do nothing. So a layer costs the same whatever ops its samples drew, and only numbers, no shapes or branches, depend
on the draw. Each op equals Pillow's result pixel for pixel.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from normatch.augment import affine, blend, tables

__all__ = [
    "MAX_STRENGTH",
    "OPS",
    "Choices",
    "Programs",
    "RandAugment",
    "apply_choices",
    "build_programs",
    "choose",
]

MAX_STRENGTH = 10
"""Strengths are tenths of an op's full range."""


class Choices(NamedTuple):
    """The random choices for each sample and layer; all are (N, K)."""

    op: Tensor  # int64, position in OPS
    strength: Tensor  # int64, 1 … max_strength-1
    negative: Tensor  # bool, the sign of warps
    applied: Tensor  # bool


class Programs(NamedTuple):
    """The parameters of all programs, a row for each possible choice."""

    warp: Tensor  # (R, 6) int32: the fixed-point matrix of affine.warp
    levels: Tensor  # (R, 3) uint8: mask, highest and curve of tables.remap
    blend: Tensor  # (R, 5) float32: base (3) and factor (2) of blend.enhance


class _Program(NamedTuple):
    """One program as Python numbers; by default it does nothing."""

    matrix: affine.Matrix = affine.IDENTITY
    mask: int = 255
    highest: int = 255
    curve: int = tables.NO_CURVE
    base: tuple[int, int, int] = blend.BLACK
    factor: float = 1.0


_Op = Callable[[int, int, int, int], _Program]
"""(strength, sign, height, width) → program."""


def _enhancer(base: tuple[int, int, int]) -> _Op:
    return lambda strength, sign, height, width: _Program(base=base, factor=strength * 0.9 / MAX_STRENGTH + 0.05)


def _posterize(strength: int, sign: int, height: int, width: int) -> _Program:
    bits = int(strength * 4 / MAX_STRENGTH) + 4
    return _Program(mask=256 - 2 ** (8 - bits))


def _solarize(strength: int, sign: int, height: int, width: int) -> _Program:
    threshold = 256 - int(strength * 256 / MAX_STRENGTH)
    return _Program(highest=threshold - 1)


def _rotate(strength: int, sign: int, height: int, width: int) -> _Program:
    return _Program(matrix=affine.rotation(sign * int(strength * 30 / MAX_STRENGTH), height, width))


def _shear_x(strength: int, sign: int, height: int, width: int) -> _Program:
    return _Program(matrix=affine.shear_x(sign * (strength * 0.3 / MAX_STRENGTH)))


def _shear_y(strength: int, sign: int, height: int, width: int) -> _Program:
    return _Program(matrix=affine.shear_y(sign * (strength * 0.3 / MAX_STRENGTH)))


def _translate_x(strength: int, sign: int, height: int, width: int) -> _Program:
    return _Program(matrix=affine.translation(sign * int(strength * 0.3 / MAX_STRENGTH * width), 0))


def _translate_y(strength: int, sign: int, height: int, width: int) -> _Program:
    return _Program(matrix=affine.translation(0, sign * int(strength * 0.3 / MAX_STRENGTH * height)))


_OPS: dict[str, _Op] = {
    "AutoContrast": lambda strength, sign, height, width: _Program(curve=tables.AUTOCONTRAST),
    "Brightness": _enhancer(blend.BLACK),
    "Color": _enhancer(blend.GREY_IMAGE),
    "Contrast": _enhancer(blend.MEAN),
    "Equalize": lambda strength, sign, height, width: _Program(curve=tables.EQUALIZE),
    "Identity": lambda strength, sign, height, width: _Program(),
    "Posterize": _posterize,
    "Rotate": _rotate,
    "Sharpness": _enhancer(blend.SMOOTH),
    "ShearX": _shear_x,
    "ShearY": _shear_y,
    "Solarize": _solarize,
    "TranslateX": _translate_x,
    "TranslateY": _translate_y,
}

OPS: tuple[str, ...] = tuple(_OPS)
"""The names of the ops, in the order of ``Choices.op``."""


def build_programs(height: int, width: int, device: torch.device | str) -> Programs:
    """The table of the programs of every op, strength 1 … 9 and sign, at one image size.

    It is computed in Python with Pillow's expressions and copied to the device: build it once, before any graph is
    captured.
    """
    programs = [
        op(strength, sign, height, width)
        for op in _OPS.values()
        for strength in range(1, MAX_STRENGTH)
        for sign in (1, -1)
    ]
    return Programs(
        warp=torch.tensor([affine.to_fixed(p.matrix) for p in programs], dtype=torch.int32, device=device),
        levels=torch.tensor([(p.mask, p.highest, p.curve) for p in programs], dtype=torch.uint8, device=device),
        blend=torch.tensor(
            [(*p.base, *blend.split_factor(p.factor)) for p in programs], dtype=torch.float32, device=device
        ),
    )


class RandAugment:
    """So many ops for each image of this size; the table of programs is copied once to each device."""

    def __init__(self, size: tuple[int, ...], ops: int, max_strength: int) -> None:
        self.size, self.ops, self.max_strength = size, ops, max_strength
        self._tables: dict[torch.device, Programs] = {}

    def draw(self, n: int, generator: torch.Generator, device: torch.device) -> tuple[Tensor, Programs]:
        if device not in self._tables:
            height, width = self.size
            self._tables[device] = build_programs(height, width, device)
        return torch.rand((4, n, self.ops), generator=generator, device=device), self._tables[device]

    def apply(self, images: Tensor, uniform: Tensor, programs: Programs) -> Tensor:
        """``images`` (N, C, H, W) uint8, C = 1 or 3, each through K ops, from numbers (4, N, K) from 0 up to 1."""
        return apply_choices(images, choose(uniform, self.max_strength), programs)


def choose(uniform: Tensor, max_strength: int) -> Choices:
    """K ops per sample with replacement, each applied with p = ½, strength 1 … max_strength-1, from numbers (4, N, K).

    The strengths are those of FixMatch's ``randint(1, max_strength)``, which excludes the end.
    """
    return Choices(
        op=(uniform[0] * len(OPS)).long(),
        strength=(uniform[1] * (max_strength - 1)).long() + 1,
        negative=uniform[2] < 0.5,
        applied=uniform[3] < 0.5,
    )


def apply_choices(images: Tensor, choices: Choices, programs: Programs) -> Tensor:
    """Each sample of ``images`` through its own K programs, one after another, from the table for this image size."""
    row = (choices.op * (MAX_STRENGTH - 1) + choices.strength - 1) * 2 + choices.negative
    idle = OPS.index("Identity") * (MAX_STRENGTH - 1) * 2
    row = torch.where(choices.applied, row, idle)
    # index_select, because indexing with a matrix is several times slower on a CPU.
    picked = [column.index_select(0, row.flatten()).view(*row.shape, column.shape[1]) for column in programs]
    for layer in range(row.shape[1]):
        warp, levels, mix = (column[:, layer] for column in picked)
        images = affine.warp(images, warp)
        images = tables.remap(images, *levels.unbind(1))
        images = blend.enhance(images, base=mix[:, :3], factor=mix[:, 3:])
    return images
