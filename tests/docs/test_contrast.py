"""Contrastive learning as the search for a recipe of minutes tried it."""

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from normatch.methods.parts.groups import OptimConfig
from normatch.training import train
from tests.conftest import make_method
from tests.docs.scripts import brief, load_script, noise, put_registries_back


@pytest.fixture
def contrast(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module, with its methods registered for the time of a test."""
    module = load_script("contrast")
    put_registries_back(monkeypatch)
    module.add_methods()
    return module


def test_the_loss_equals_numpy(contrast: ModuleType) -> None:
    h = np.random.default_rng(0).normal(size=(6, 5))
    unit = h / np.linalg.norm(h, axis=1, keepdims=True)
    e = np.exp(unit @ unit.T / 0.5)
    losses = [-np.log(e[i, (i + 3) % 6] / (e[i].sum() - e[i, i])) for i in range(6)]
    assert contrast.nt_xent(torch.from_numpy(h)).item() == pytest.approx(np.mean(losses), rel=1e-5)


def test_a_view_keeps_shape_and_range_and_draws_for_each_image(contrast: ModuleType) -> None:
    torch.manual_seed(0)
    image = torch.randint(0, 256, (1, 3, 32, 32), dtype=torch.uint8)
    views = contrast.SimclrView()(image.expand(500, -1, -1, -1))
    assert views.shape == (500, 3, 32, 32)
    assert views.min() >= 0
    assert views.max() <= 255
    assert len(views.flatten(1).unique(dim=0)) == 500
    grey = (views.amax(1) - views.amin(1)).amax((1, 2)) < 1e-3
    assert 0.15 < grey.float().mean() < 0.25


def test_a_whole_crop_is_the_image_or_its_mirror_image(contrast: ModuleType) -> None:
    image = torch.rand(2, 3, 8, 8)
    draws = torch.tensor([[1.0, 0.5, 0.5, 0.5, 0.0], [1.0, 0.5, 0.5, 0.5, 1.0]]).T
    straight, mirrored = contrast._crop(image, draws)
    torch.testing.assert_close(straight, image[0])
    torch.testing.assert_close(mirrored, image[1].flip(-1))


def test_to_turn_the_hue_keeps_the_luma_and_the_whole_turn_the_image(contrast: ModuleType) -> None:
    view, x = contrast.SimclrView(), torch.rand(4, 3, 8, 8)
    turned = view._turn_hue(x, torch.tensor([0.0, 2 * torch.pi, 0.5, -0.5]))
    torch.testing.assert_close(turned[:2], x[:2], atol=1e-5, rtol=1e-4)
    assert not torch.allclose(turned[2:], x[2:], atol=0.05)
    torch.testing.assert_close(contrast._grey(turned), contrast._grey(x), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("method", "contrasts"), [("contrast", True), ("normatch-contrasting", True), ("normatch-started", False)]
)
def test_its_methods_train(contrast: ModuleType, method: str, contrasts: bool, tmp_path: Path) -> None:
    for line in train(brief(method, 2), tmp_path / "run", corpus=noise()).metrics():
        assert line["loss"] > 0
        assert (line.get("loss/contrast", 0) > 0) == contrasts


def test_a_run_can_start_from_the_network_of_another(contrast: ModuleType, tmp_path: Path) -> None:
    train(brief("contrast", 2), tmp_path / "first", corpus=noise())
    still = brief("normatch-started", 1).replace(optim=OptimConfig(lr=1e-12))
    for start, name in ((tmp_path / "first", "started"), (None, "plain")):
        contrast.Started.start = start
        train(still, tmp_path / name, corpus=noise())
    first, started, plain = (load_file(tmp_path / name / "model.safetensors") for name in ("first", "started", "plain"))
    weights = [name for name in first if name.endswith(".weight") and first[name].ndim > 1]
    assert {name.split(".")[0] for name in weights} == {"backbone", "head"}
    for name in weights:
        torch.testing.assert_close(started[name], first[name])
        assert not torch.allclose(plain[name], first[name])


def test_views_of_an_image_are_likened_at_first(contrast: ModuleType, tmp_path: Path) -> None:
    lines = list(train(brief("normatch-likened", 10), tmp_path / "run", corpus=noise()).metrics())
    losses = [line["loss/contrast"] for line in lines if "loss" in line]
    assert all(loss > 0 for loss in losses[:4])
    assert losses[4:] == [0.0] * 6


def test_the_contrast_of_views_equals_numpy(contrast: ModuleType) -> None:
    features = torch.randn(3, 6, 4, requires_grad=True)
    z_labelled, z_weak, z_strong = features
    method: Any = make_method("normatch")
    method.__class__ = contrast.Likened
    method.project = torch.nn.Identity()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contrast.NorMatch, "embed", lambda *_: (z_labelled, z_weak, z_strong))
        assert all(map(torch.equal, method.embed(None), (z_labelled, z_weak, z_strong)))
    q, k = (z.detach().numpy() / np.linalg.norm(z.detach().numpy(), axis=1, keepdims=True) for z in (z_strong, z_weak))
    e = np.exp(q @ k.T / 0.1)
    assert method.contrast.item() == pytest.approx(-np.log(np.diag(e) / e.sum(1)).mean(), rel=1e-4)
    method.contrast.backward()
    assert features.grad is not None
    assert not features.grad[:2].any()
    assert features.grad[2].any()
