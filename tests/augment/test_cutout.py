"""Cutout paints one grey rectangle a sample, its centre uniform over the image, and nothing else."""

import pytest
import torch

from normatch.augment.cutout import cut_out


@pytest.mark.parametrize(
    ("shape", "hole"), [((1, 8, 8), (4, 4)), ((3, 32, 32), (16, 16)), ((3, 33, 20), (16, 10)), ((1, 9, 9), (9, 9))]
)
def test_paints_its_rectangle_in_the_grey_of_fixmatch(shape: tuple[int, int, int], hole: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(128, 256, (50, *shape), dtype=torch.uint8, generator=generator)
    uniform = torch.rand(2, 50, generator=generator)
    expected = images.clone()
    for image, centre in zip(expected, uniform.T.tolist(), strict=True):
        top, left = (int(c * side) - size // 2 for c, side, size in zip(centre, shape[1:], hole, strict=True))
        image[:, max(top, 0) : top + hole[0], max(left, 0) : left + hole[1]] = 127
    assert torch.equal(cut_out(images, uniform, hole), expected)
