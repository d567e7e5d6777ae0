"""Batches through a model: the same bits however the images lie in memory."""

import pytest
import torch

from normatch.evaluate import Predictor
from normatch.nets.inference import contiguous, features, logits
from normatch.nets.model import Model, ModelSpec


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


@pytest.mark.parametrize(
    ("side", "at_once", "predicted"), [(8, 500, 256), (64, 256, 256), (96, 113, 113), (224, 20, 20)]
)
def test_fewer_large_pictures_go_through_a_network_at_once(
    side: int, at_once: int, predicted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone = "small-wide" if side <= 64 else "resnet-18"
    model = Model(ModelSpec(backbone, (1, side, side), ("a", "b"), (100.0,), (50.0,))).eval()
    sizes: list[int] = []

    def noted(x: torch.Tensor) -> torch.Tensor:
        sizes.append(len(x))
        return torch.zeros(len(x), model.backbone.features)

    monkeypatch.setattr(model.backbone, "forward", noted)
    images = torch.zeros(501, 1, 1, 1, dtype=torch.uint8).expand(-1, 1, side, side)
    for run in (logits, features):
        assert len(run(model, images)) == 501
    assert set(sizes) == {at_once, 501 % at_once}
    sizes.clear()
    Predictor(model).predict_proba(images.permute(0, 2, 3, 1).numpy())
    assert set(sizes) == {predicted, 501 % predicted}
