"""The numbers of every recipe: those of the paper, and where a recipe has its own."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from normatch.config import Config, flat, to_json
from normatch.data import sources
from normatch.nets import backbones
from normatch.recipes import (
    cifar10,
    cifar10_fast,
    cifar100,
    digits,
    mini_imagenet,
    own,
    recipes,
    stl10,
    svhn,
)

PAPER: dict[str, Any] = {
    "method": "normatch",
    "test_share": 0.0,
    "fold": None,
    "backbone": "wrn-28-2",
    "norm_momentum": None,
    "augment.flip": True,
    "augment.ops": 2,
    "steps": 1024 * 1024,
    "epoch": 1024,
    "batch": 64,
    "ratio": 7,
    "optim.lr": 0.03,
    "optim.weight_decay": 5e-4,
    "optim.muon": 0.0,
    "ema": 0.999,
    "ema_ramp": False,
    "seed": 0,
    "optim.cosine": 7 / 16,
    "settings.pseudo_label": "soft",
    "settings.decide_after": 1.0,
    "settings.adaptive": False,
    "settings.passes": "joint",
    "settings.alignment": True,
    "settings.consensus": "min",
    "settings.num_weight": 1e-6,
    "settings.flow_layers": 6,
    "settings.flow_hidden": 32,
    "settings.flow_lr": 1e-3,
    "settings.flow_clip": 50.0,
    "settings.flow_ramp": 5,
    "optim.momentum": 0.9,
}

DIGITS = {
    "test_share": 0.2,
    "backbone": "small-wide",
    "augment.flip": False,
    "steps": 600,
    "epoch": 60,
    "batch": 32,
    "optim.lr": 0.06,
    "ema": 0.99,
    "ema_ramp": True,
}
FAST = {
    "backbone": "quick-resnet-wide",
    "augment.ops": 3,
    "steps": 48 * 1024,
    "epoch": 512,
    "optim.lr": 0.1,
    "optim.muon": 0.015,
    "optim.cosine": 0.5,
    "settings.passes": "shared",
    "settings.decide_after": 0.6,
    "settings.adaptive": True,
}
CIFAR100 = {"backbone": "wrn-28-8", "optim.weight_decay": 1e-3}
STL10 = {"fold": 0, "backbone": "resnet-18", "settings.pseudo_label": "onehot"}
MINI_IMAGENET = {"backbone": "resnet-18", "steps": 600 * 1024}
SVHN = {"augment.flip": False}
OWN = {"backbone": "auto", "norm_momentum": 0.01, "steps": 4096, "epoch": 128, "ema_ramp": True}

RECIPES: dict[str, tuple[str, int | None, dict[str, Any]]] = {
    "digits-40": ("digits", 40, DIGITS),
    "cifar10-40": ("cifar10", 40, {}),
    "cifar10-250": ("cifar10", 250, {}),
    "cifar10-4000": ("cifar10", 4000, {}),
    "cifar10-40-fast": ("cifar10", 40, FAST),
    "cifar100-400": ("cifar100", 400, CIFAR100),
    "cifar100-2500": ("cifar100", 2500, CIFAR100),
    "cifar100-10000": ("cifar100", 10000, CIFAR100),
    "mini-imagenet-4000": ("mini-imagenet", 4000, MINI_IMAGENET),
    "svhn-40": ("svhn", 40, SVHN),
    "svhn-250": ("svhn", 250, SVHN),
    "svhn-1000": ("svhn", 1000, SVHN),
    "stl10-1000": ("stl10", None, STL10),
}
"""Data, labels, and what differs from the paper's CIFAR-10."""


def numbers(config: Config) -> dict[str, Any]:
    fields = flat(to_json(config))
    return {name: fields[name] for name in ("data", "labels", *PAPER)}


@pytest.mark.parametrize("name", recipes.names())
def test_a_recipe_has_these_numbers_and_names_things_that_exist(name: str) -> None:
    config = recipes.get(name).build()
    data, labels, own_numbers = RECIPES[name]
    assert config.name == name
    assert numbers(config) == {"data": data, "labels": labels} | PAPER | own_numbers
    assert Config.from_json(json.loads(json.dumps(to_json(config)))) == config
    source = sources.get(config.data)
    assert backbones.get(config.backbone).supports(source.shape)
    assert config.labels is None or config.labels % source.classes == 0


def test_the_defaults_of_a_config_are_those_of_the_paper() -> None:
    assert set(recipes.names()) == set(RECIPES)
    assert Config(name="cifar10-40") == recipes.get("cifar10-40").build()


def test_own_data_has_these_numbers() -> None:
    assert numbers(own("birds")) == {"data": "birds", "labels": None} | PAPER | OWN


@pytest.mark.parametrize("build", [digits, cifar10, cifar10_fast, cifar100, mini_imagenet, svhn])
def test_a_recipe_takes_other_labels_and_another_seed(build: Callable[[int, int], Config]) -> None:
    config = build(1000, 5)
    assert (config.labels, config.seed) == (1000, 5)
    assert "1000" in config.name.split("-")
    assert (stl10(fold=3, seed=5).fold, stl10(fold=3, seed=5).seed) == (3, 5)


def test_own_data_give_the_run_its_name(tmp_path: Path) -> None:
    (tmp_path / "shots.2024").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    named = {data: own(str(tmp_path / data)).name for data in ("shots.2024", "list.csv", "loop", "a\x1b\nb")}
    assert named == {"shots.2024": "shots.2024", "list.csv": "list", "loop": "loop", "a\x1b\nb": "a__b"}
