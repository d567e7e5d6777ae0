"""The weak view is a crop of the reflect-padded, perhaps mirrored, image."""

import numpy as np
import pytest
import torch

from normatch.augment.weak import weak_view


@pytest.mark.parametrize("flip", [True, False])
@pytest.mark.parametrize(
    ("shape", "pad"),
    [((3, 33, 20), (4, 2)), ((1, 4, 5), (3, 4)), ((3, 5, 7), (0, 0))],
    ids=str,
)
def test_is_a_crop_of_the_reflected_image(shape: tuple[int, int, int], pad: tuple[int, int], flip: bool) -> None:
    h, w = shape[1:]
    images = torch.randint(0, 256, (60, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    uniform = torch.rand(3, 60, generator=torch.Generator().manual_seed(1))
    result = weak_view(images, uniform, pad, flip)
    for image, numbers, view in zip(images.numpy(), uniform.T.tolist(), result.numpy(), strict=True):
        mirrored = image[:, :, ::-1] if flip and numbers[0] < 0.5 else image
        padded = np.pad(mirrored, ((0, 0), (pad[0], pad[0]), (pad[1], pad[1])), mode="reflect")
        y, x = (int(number * (2 * p + 1)) for number, p in zip(numbers[1:], pad, strict=True))
        np.testing.assert_array_equal(view, padded[:, y : y + h, x : x + w])
