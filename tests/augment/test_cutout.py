"""Cutout paints one grey rectangle a sample, its centre uniform over the image, and nothing else."""

import pytest
import torch

from normatch.augment.cutout import GREY, CutoutParams, apply_cutout, settle_cutout


@pytest.mark.parametrize(
    ("shape", "hole"), [((1, 8, 8), (4, 4)), ((3, 32, 32), (16, 16)), ((3, 33, 20), (16, 10)), ((1, 9, 9), (9, 9))]
)
def test_paints_its_rectangle(shape: tuple[int, int, int], hole: tuple[int, int]) -> None:
    h, w = shape[1:]
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(128, 256, (50, *shape), dtype=torch.uint8, generator=generator)
    params = settle_cutout(torch.rand(2, 50, generator=generator), (h, w), hole)
    expected = images.clone()
    for image, top, left, bottom, right in zip(expected, *(p.tolist() for p in params), strict=True):
        assert (bottom - top, right - left) == hole
        image[:, max(top, 0) : bottom, max(left, 0) : right] = GREY
    assert torch.equal(apply_cutout(images, params), expected)


def test_centres_are_uniform_and_areas_follow() -> None:
    n = 50_000
    params = settle_cutout(torch.rand(2, n, generator=torch.Generator().manual_seed(1)), (8, 8), (4, 4))
    for start in (params.top, params.left):
        share = torch.bincount(start + 2, minlength=8) / n
        assert share.shape == (8,)
        assert torch.allclose(share, torch.tensor(1 / 8), atol=0.01)
    area = (apply_cutout(torch.zeros(n, 1, 8, 8, dtype=torch.uint8), params) == GREY).sum((1, 2, 3)).float()
    # A side of 4 at -2 … 5 keeps 2, 3, 4, 4, 4, 4, 4, 3 of its pixels: 28/8 on average.
    assert area.mean() == pytest.approx((28 / 8) ** 2, abs=0.1)
    assert area.min() == 4
    assert area.max() == 16


def test_hole_outside_paints_nothing() -> None:
    images = torch.zeros(1, 3, 4, 4, dtype=torch.uint8)
    far = CutoutParams(*(torch.tensor([v]) for v in (-9, -9, -1, -1)))
    assert torch.equal(apply_cutout(images, far), images)
