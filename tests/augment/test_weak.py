"""The weak view is a crop of the reflect-padded, perhaps mirrored, image."""

import numpy as np
import pytest
import torch

from normatch.augment.weak import WeakParams, apply_weak, settle_weak


@pytest.mark.parametrize(
    ("shape", "pad"), [((1, 8, 8), (1, 1)), ((3, 32, 32), (4, 4)), ((3, 33, 20), (4, 2)), ((1, 4, 5), (3, 4))], ids=str
)
def test_is_a_crop_of_the_reflected_image(shape: tuple[int, int, int], pad: tuple[int, int]) -> None:
    h, w = shape[1:]
    images = torch.randint(0, 256, (60, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    params = settle_weak(torch.rand(3, 60, generator=torch.Generator().manual_seed(1)), pad, True)
    result = apply_weak(images, params)
    assert result.shape == images.shape
    assert result.dtype == torch.uint8
    for image, flip, top, left, view in zip(images.numpy(), *(p.tolist() for p in params), result, strict=True):
        mirrored = image[:, :, ::-1] if flip else image
        padded = np.pad(mirrored, ((0, 0), (pad[0], pad[0]), (pad[1], pad[1])), mode="reflect")
        y, x = top + pad[0], left + pad[1]
        np.testing.assert_array_equal(view.numpy(), padded[:, y : y + h, x : x + w])


def test_flip_alone_mirrors() -> None:
    images = torch.arange(24, dtype=torch.uint8).view(2, 1, 3, 4)
    zero = torch.zeros(2, dtype=torch.int64)
    result = apply_weak(images, WeakParams(torch.tensor([True, False]), zero, zero))
    assert torch.equal(result[0], images[0].flip(-1))
    assert torch.equal(result[1], images[1])


@pytest.mark.parametrize("flip", [True, False])
def test_draws_are_uniform(flip: bool) -> None:
    params = settle_weak(torch.rand(3, 50_000, generator=torch.Generator().manual_seed(2)), (4, 2), flip)
    assert params.flip.float().mean() == pytest.approx(0.5 if flip else 0, abs=0.01)
    for offset, pad in ((params.top, 4), (params.left, 2)):
        share = torch.bincount(offset + pad, minlength=2 * pad + 1) / 50_000
        assert torch.allclose(share, torch.tensor(1 / (2 * pad + 1)), atol=0.01)


def test_no_padding_moves_nothing() -> None:
    images = torch.randint(0, 256, (9, 3, 5, 7), dtype=torch.uint8)
    params = settle_weak(torch.rand(3, 9, generator=torch.Generator()), (0, 0), False)
    assert torch.equal(apply_weak(images, params), images)
