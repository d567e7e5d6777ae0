"""Batches through a model: the same bits however the images lie in memory."""

import pytest
import torch

from normatch.inference import contiguous, features, logits
from normatch.model import Model, ModelSpec


@pytest.mark.parametrize("channels", [1, 3])
def test_one_layout_has_one_set_of_strides(channels: int) -> None:
    last = torch.arange(2 * channels * 12).view(2, 3, 4, channels).permute(0, 3, 1, 2)
    planar = last.clone(memory_format=torch.contiguous_format)
    assert planar.stride() != last.stride()
    for x in (planar, last):
        assert torch.equal(contiguous(x), planar)
        assert contiguous(x).stride() == (12 * channels, 12, 4, 1)
    assert contiguous(planar).data_ptr() == planar.data_ptr()
    assert contiguous(planar[:0]).shape == (0, channels, 3, 4)


@pytest.mark.parametrize("channels", [1, 3])
def test_results_do_not_depend_on_the_layout_of_images(channels: int) -> None:
    torch.manual_seed(0)
    spec = ModelSpec("small-wide", (channels, 8, 8), ("a", "b"), (100.0,) * channels, (50.0,) * channels)
    model = Model(spec).eval()
    images = torch.randint(0, 256, (23, 8, 8, channels), dtype=torch.uint8).permute(0, 3, 1, 2)
    for run in (logits, features):
        assert torch.equal(run(model, images), run(model, images.clone(memory_format=torch.contiguous_format)))
