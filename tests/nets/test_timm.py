"""Networks of timm, whose place a small stand-in takes: timm itself needs a torchvision that fits torch."""

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import normatch
from normatch.config import Config
from normatch.errors import UserError
from normatch.nets import create_backbone, find_backbone
from normatch.training import prepare, train

WEIGHT = 0.25


class Tiny(nn.Module):
    """A convolution, batch norm and a mean; like timm's it says what size it was made for."""

    pretrained_cfg = {"input_size": (3, 16, 16)}  # noqa: RUF012 - as timm has it

    def __init__(self, channels: int, fixed: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, 6, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(6)
        self.fixed = fixed

    def forward(self, x: Tensor) -> Tensor:
        if self.fixed:
            torch._assert(x.shape[-1] == 16, "Input width doesn't match model (16).")
        features: Tensor = self.norm(self.conv(x)).relu().mean((2, 3))
        return features


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """timm with two networks; ``online`` says whether weights can be fetched, ``fetched`` counts."""
    state = SimpleNamespace(online=True, fetched=0)

    def create_model(name: str, *, pretrained: bool, num_classes: int, in_chans: int) -> nn.Module:
        assert num_classes == 0
        net = Tiny(in_chans, fixed=name.startswith("fixed"))
        if pretrained:
            if not state.online:
                raise OSError("Name or service not known.\nRetry later.")
            state.fetched += 1
            nn.init.constant_(net.conv.weight, WEIGHT)
        return net

    timm = ModuleType("timm")
    timm.__dict__.update(
        __version__="1.0",
        create_model=create_model,
        list_models=lambda pretrained=False: ["tiny.a1_in1k"] if pretrained else ["fixed", "tiny"],
        get_pretrained_cfg=lambda name: SimpleNamespace(mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4)),
    )
    monkeypatch.setitem(sys.modules, "timm", timm)
    return state


def test_a_run_starts_from_pretrained_weights(stand_in: SimpleNamespace, tiny_config: Config) -> None:
    model = prepare(tiny_config.replace(backbone="timm:tiny.a1_in1k", norm_momentum=0.03)).method.model
    assert stand_in.fetched == 1
    assert (model.backbone.get_parameter("net.conv.weight") == WEIGHT).all()
    assert model.backbone.get_parameter("net.conv.weight").shape == (6, 1, 3, 3)
    assert [m.momentum for m in model.backbone.modules() if isinstance(m, nn.BatchNorm2d)] == [0.03]
    # Grey images are normalised by the mean of the three colours' statistics.
    assert model.spec.mean == pytest.approx((0.4 * 255,))
    assert model.spec.std == pytest.approx((0.3 * 255,))
    assert model.backbone.training
    spec = find_backbone("timm:tiny")
    assert spec.statistics is not None
    assert spec.statistics((3, 32, 32))[0] == pytest.approx((127.5, 102.0, 76.5))
    assert find_backbone("timm-scratch:tiny").statistics is None, "those of the data"


def test_reading_and_resuming_never_fetch(stand_in: SimpleNamespace, tiny_config: Config, tmp_path: Path) -> None:
    config = tiny_config.replace(backbone="timm:tiny.a1_in1k", steps=2)
    run = train(config, tmp_path / "run")
    images = np.random.default_rng(0).integers(0, 256, (5, 8, 8), dtype=np.uint8)
    assert json.loads((run.path / "model.json").read_text())["backbone"] == "timm:tiny.a1_in1k"
    stand_in.online = False
    expected = normatch.load(run.path).predict_proba(images)
    (run.path / "result.json").unlink()
    assert train(config, run.path, resume=True).finished
    np.testing.assert_array_equal(normatch.load(run.path).predict_proba(images), expected)
    assert stand_in.fetched == 1


def test_weights_that_cannot_be_fetched(stand_in: SimpleNamespace, tiny_config: Config, tmp_path: Path) -> None:
    stand_in.online = False
    with pytest.raises(UserError) as caught:
        train(tiny_config.replace(backbone="timm:tiny.a1_in1k"), tmp_path / "run")
    assert str(caught.value) == (
        "cannot fetch the weights of timm's tiny.a1_in1k (Name or service not known): fix the connection, or start "
        "without them with --backbone timm-scratch:tiny.a1_in1k"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "shape", "says"),
    [
        ("timm:tinny", (3, 32, 32), "'timm:tinny': timm 1.0 has no such network; did you mean tiny"),
        ("timm-scratch:", (3, 32, 32), "'timm-scratch:': timm 1.0 has no such network; see timm.list_models"),
        ("timm-scratch:fixed", (3, 32, 32), r"fixed does not take images of .* \(.*\): set image_size to 16"),
        ("timm:tiny", (64,), r"'timm:tiny' does not take samples of shape \(64,\), only images"),
        ("tim:tiny", (3, 32, 32), "unknown backbone 'tim:tiny'"),
    ],
)
def test_wrong_names_and_sizes(name: str, shape: tuple[int, ...], says: str, stand_in: SimpleNamespace) -> None:
    with pytest.raises(UserError, match=says):
        create_backbone(name, shape)


def test_timm_is_not_there_or_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(UserError, match=r"this backbone needs timm: pip install 'normatch\[timm\]'"):
        create_backbone("timm:tiny", (3, 32, 32))
    (tmp_path / "timm.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.delitem(sys.modules, "timm")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match=r"timm cannot be imported \(operator .*\): reinstall it, and the torchvision"):
        create_backbone("timm:tiny", (3, 32, 32))
