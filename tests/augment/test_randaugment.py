"""The contract of every RandAugment op: Pillow's result, pixel for pixel, at every strength and sign."""

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from normatch.augment import OPS
from normatch.augment.randaugment import Choices, Programs, RandAugment, apply_choices, build_programs, choose

Levels = NDArray[np.uint8]
STRENGTHS = range(1, 10)
SIZES = [(3, 4), (8, 8), (32, 32), (33, 20)]


def affine(image: Image.Image, *matrix: float) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, matrix)


def enhancer(kind: Callable[[Image.Image], ImageEnhance._Enhance]) -> Callable[[Image.Image, int, int], Image.Image]:
    return lambda image, strength, sign: kind(image).enhance(float(strength) * 0.9 / 10 + 0.05)


def shear(strength: int, sign: int) -> float:
    return sign * (float(strength) * 0.3 / 10)


PILLOW: dict[str, Callable[[Image.Image, int, int], Image.Image]] = {
    "AutoContrast": lambda image, strength, sign: ImageOps.autocontrast(image),
    "Brightness": enhancer(ImageEnhance.Brightness),
    "Color": enhancer(ImageEnhance.Color),
    "Contrast": enhancer(ImageEnhance.Contrast),
    "Equalize": lambda image, strength, sign: ImageOps.equalize(image),
    "Identity": lambda image, strength, sign: image,
    "Posterize": lambda image, strength, sign: ImageOps.posterize(image, int(strength * 4 / 10) + 4),
    "Rotate": lambda image, strength, sign: image.rotate(sign * int(strength * 30 / 10)),
    "Sharpness": enhancer(ImageEnhance.Sharpness),
    "ShearX": lambda image, strength, sign: affine(image, 1, shear(strength, sign), 0, 0, 1, 0),
    "ShearY": lambda image, strength, sign: affine(image, 1, 0, 0, shear(strength, sign), 1, 0),
    "Solarize": lambda image, strength, sign: ImageOps.solarize(image, 256 - int(strength * 256 / 10)),
    "TranslateX": lambda image, strength, sign: affine(image, 1, 0, int(shear(strength, sign) * image.width), 0, 1, 0),
    "TranslateY": lambda image, strength, sign: affine(image, 1, 0, 0, 0, 1, int(shear(strength, sign) * image.height)),
}
"""An independent oracle: the ops of the widely used PyTorch FixMatch, in Pillow's own calls."""


def pillow(op: str, image: Levels, strength: int, sign: int) -> Levels:
    """(H, W, C) → (H, W, C) through Pillow's modes L and RGB."""
    picture = Image.fromarray(image if image.shape[2] == 3 else image[:, :, 0])
    return np.asarray(PILLOW[op](picture, strength, sign)).reshape(image.shape)


def pictures(height: int, width: int, channels: int) -> Levels:
    """Images of many characters (N, H, W, C)."""
    rng = np.random.default_rng(height * width + channels)
    shape = (height, width, channels)
    ramp = np.linspace(0, 255, height * width * channels).reshape(shape)
    kinds = [
        rng.integers(0, 256, (3, *shape)),
        rng.integers(90, 115, (2, *shape)),
        np.clip(rng.normal(128, 40, (3, *shape)), 0, 255),
        rng.choice([3, 80, 81, 255], (2, *shape)),
        rng.choice([20, 200], (1, *shape), p=[0.95, 0.05]),
        np.stack([ramp, ramp[::-1] / 2, 40 + ramp.transpose(1, 0, 2).reshape(shape) / 3]),
        np.stack([np.full(shape, level) for level in (0, 77, 255)]),
    ]
    return np.concatenate(kinds).astype(np.uint8)


def to_tensor(images: Levels) -> Tensor:
    return torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()


def augmented(images: Levels, op: Tensor, strength: Tensor, sign: Tensor) -> Levels:
    """``images`` (N, H, W, C) after ops (N, K) of these strengths and signs."""
    choices = Choices(op, strength, sign < 0, torch.ones_like(op, dtype=torch.bool))
    _, height, width, _ = images.shape
    result = apply_choices(to_tensor(images), choices, build_programs(height, width, "cpu"))
    return result.permute(0, 2, 3, 1).numpy()


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("op", OPS)
def test_equals_pillow(op: str, size: tuple[int, int], channels: int) -> None:
    images = pictures(*size, channels)
    cases = [(image, strength, sign) for image in range(len(images)) for strength in STRENGTHS for sign in (1, -1)]
    image, strength, sign = (torch.tensor(column)[:, None] for column in zip(*cases, strict=True))
    result = augmented(images[image[:, 0]], torch.full_like(image, OPS.index(op)), strength, sign)
    expected = np.stack([pillow(op, images[i], strength, sign) for i, strength, sign in cases])
    np.testing.assert_array_equal(result, expected)


def test_equals_pillow_where_rounding_decides() -> None:
    """Every blue against the greys it can have, and ranges of levels: also those whose result is whole."""
    blue, rest = np.meshgrid(np.arange(256), np.arange(256))
    image = np.stack([rest, rest, blue], 2).astype(np.uint8)
    for strength in STRENGTHS:
        (result,) = augmented(image[None], *(torch.tensor([[v]]) for v in (OPS.index("Color"), strength, 1)))
        np.testing.assert_array_equal(result, pillow("Color", image, strength, 1))
    case, level = torch.full((256, 1), OPS.index("AutoContrast")), np.arange(256)
    for low in range(0, 256, 45):
        images = np.stack([level.clip(low, max(low, high)) for high in range(256)])
        images = images.reshape(256, 16, 16, 1).astype(np.uint8)
        result = augmented(images, case, torch.ones_like(case), torch.ones_like(case))
        np.testing.assert_array_equal(result, np.stack([pillow("AutoContrast", image, 1, 1) for image in images]))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.filterwarnings("default")  # torch's own compiler uses what torch deprecates
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (3, 33, 20)], ids=str)
def test_a_gpu_makes_the_same_images(shape: tuple[int, int, int]) -> None:
    """Its compiler fuses products and sums, which rounds differently: every op, strength and sign on noise."""
    case = torch.arange(len(OPS) * 9 * 2 * 8)[:, None]
    choices = Choices(case % 14, 1 + case // 14 % 9, case // 126 % 2 == 1, torch.ones_like(case, dtype=torch.bool))
    low = torch.randint(0, 200, (len(case), 1, 1, 1))
    images = (low + torch.rand(len(case), *shape) * (256 - low)).to(torch.uint8)
    expected = apply_choices(images, choices, build_programs(*shape[1:], "cpu"))
    on_device = Choices(*(column.cuda() for column in choices)), build_programs(*shape[1:], "cuda")
    compiled: Any = torch.compile(apply_choices, fullgraph=True, dynamic=False)
    for apply in (apply_choices, compiled):
        assert torch.equal(apply(images.cuda(), *on_device).cpu(), expected)


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 20, 33)], ids=str)
def test_samples_do_not_touch_each_other(shape: tuple[int, int, int]) -> None:
    generator = torch.Generator().manual_seed(3)
    images = torch.randint(0, 256, (40, *shape), dtype=torch.uint8, generator=generator)
    uniform, table = torch.rand(4, 40, 2, generator=generator), build_programs(*shape[1:], "cpu")
    before = images.clone(), Programs(*(column.clone() for column in table))
    augment = RandAugment(shape[1:], ops=2, max_strength=10).apply
    whole = augment(images, uniform, table)
    single = [augment(images[i : i + 1], uniform[:, i : i + 1], table) for i in range(40)]
    assert torch.equal(whole, torch.cat(single))
    assert torch.equal(images, before[0])
    assert all(torch.equal(a, b) for a, b in zip(table, before[1], strict=True))


def test_layers_follow_each_other_and_what_is_not_applied_changes_nothing() -> None:
    images = pictures(32, 32, 3)
    ops = torch.tensor([[OPS.index("Rotate"), OPS.index("Equalize")]]).expand(len(images), 2)
    expected = np.stack([pillow("Equalize", pillow("Rotate", image, 7, 1), 7, 1) for image in images])
    np.testing.assert_array_equal(augmented(images, ops, torch.full_like(ops, 7), torch.ones_like(ops)), expected)
    idle = Choices(ops, torch.full_like(ops, 7), ops < 0, ops < 0)
    assert torch.equal(apply_choices(to_tensor(images), idle, build_programs(32, 32, "cpu")), to_tensor(images))


@pytest.mark.parametrize("max_strength", [2, 6, 10])
def test_draws_are_uniform(max_strength: int) -> None:
    n = 70_000
    choices = choose(torch.rand(4, n, 2, generator=torch.Generator().manual_seed(1)), max_strength)
    assert all(column.shape == (n, 2) for column in choices)

    def share(column: Tensor, values: int) -> Tensor:
        return torch.bincount(column.flatten().long(), minlength=values) / column.numel()

    # 140,000 draws: a share of ½ has a standard error of 0.0013.
    assert torch.allclose(share(choices.op, 14), torch.tensor(1 / 14), atol=0.004)
    strengths = share(choices.strength, 11)
    assert torch.allclose(strengths[1:max_strength], torch.tensor(1 / (max_strength - 1)), atol=0.006)
    assert strengths[1:max_strength].sum() == pytest.approx(1)
    assert choices.applied.float().mean() == pytest.approx(0.5, abs=0.006)
    assert choices.negative.float().mean() == pytest.approx(0.5, abs=0.006)


def test_draws_do_not_depend_on_each_other() -> None:
    n = 70_000
    choices = choose(torch.rand(4, n, 2, generator=torch.Generator().manual_seed(2)), 10)
    columns = [
        (column[:, layer].long() - first, values)
        for column, first, values in zip(choices, (0, 1, 0, 0), (len(OPS), 9, 2, 2), strict=True)
        for layer in range(2)
    ]
    for (one, ones), (other, others) in combinations(columns, 2):
        pairs = torch.bincount(one * others + other, minlength=ones * others) / n
        assert torch.allclose(pairs, torch.tensor(1 / (ones * others)), atol=0.008)
