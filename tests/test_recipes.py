"""The numbers of every recipe: those of the paper, and where a recipe has its own."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from normatch.config import Config, flat, to_json
from normatch.data import sources
from normatch.nets import backbones
from normatch.recipes import cifar10, cifar10_fast, cifar100, digits, mini_imagenet, own, recipes, stl10, svhn

PAPER = """
    data=cifar10 labels=40 fold=None test_share=0.0 seed=0 method=normatch backbone=wrn-28-2 norm_momentum=None
    augment.flip=True augment.ops=2 steps=1048576 epoch=1024 batch=64 ratio=7 ema=0.999 ema_ramp=False
    optim.lr=0.03 optim.weight_decay=0.0005 optim.momentum=0.9 optim.cosine=0.4375 optim.muon=0.0
    settings.pseudo_label=soft settings.alignment=True settings.num_weight=1e-06
    settings.consensus=nfc settings.disagree=min settings.passes=joint settings.decide_after=1.0 settings.adaptive=False
    settings.flow_layers=6 settings.flow_hidden=32 settings.flow_lr=0.001 settings.flow_clip=50.0 settings.flow_ramp=5
"""
FAST = """
    backbone=quick-resnet-wide augment.ops=3 steps=49152 epoch=512 optim.lr=0.1 optim.muon=0.015 optim.cosine=0.5
    settings.passes=shared settings.decide_after=0.6 settings.adaptive=True evaluate_every=4096 checkpoint_every=8192
"""
DIGITS = """
    data=digits test_share=0.2 backbone=small-wide augment.flip=False steps=600 epoch=60 batch=32 optim.lr=0.06
    ema=0.99 ema_ramp=True log_every=25
"""
CIFAR100 = "data=cifar100 backbone=wrn-28-8 optim.weight_decay=0.001 labels="
RECIPES = {
    "digits-40": DIGITS,
    "cifar10-40": "",
    "cifar10-250": "labels=250",
    "cifar10-4000": "labels=4000",
    "cifar10-40-fast": FAST,
    "cifar100-400": f"{CIFAR100}400",
    "cifar100-2500": f"{CIFAR100}2500",
    "cifar100-10000": f"{CIFAR100}10000",
    "mini-imagenet-4000": "data=mini-imagenet labels=4000 backbone=resnet-18 steps=614400",
    "svhn-40": "data=svhn augment.flip=False",
    "svhn-250": "data=svhn augment.flip=False labels=250",
    "svhn-1000": "data=svhn augment.flip=False labels=1000",
    "stl10-1000": "data=stl10 labels=None fold=0 backbone=resnet-18 settings.pseudo_label=onehot",
}
"""What differs from the paper's CIFAR-10 with 40 labels."""


def numbers(config: Config) -> set[str]:
    return {f"{name}={value}" for name, value in flat(to_json(config)).items()}


def differences(config: Config) -> set[str]:
    return numbers(config) - numbers(Config(name=config.name))


@pytest.mark.parametrize("name", recipes.names())
def test_a_recipe_has_these_numbers_and_names_things_that_exist(name: str) -> None:
    config = recipes.get(name).build()
    assert config.name == name
    assert differences(config) == set(RECIPES[name].split())
    assert Config.from_json(json.loads(json.dumps(to_json(config)))) == config
    source = sources.get(config.data)
    assert backbones.get(config.backbone).supports(source.shape)
    assert config.labels is None or config.labels % source.classes == 0


def test_the_defaults_of_a_config_are_those_of_the_paper() -> None:
    assert set(recipes.names()) == set(RECIPES)
    assert set(PAPER.split()) - numbers(Config(name="cifar10-40")) == set()


@pytest.mark.parametrize("build", [digits, cifar10, cifar10_fast, cifar100, mini_imagenet, svhn])
def test_a_recipe_takes_other_labels_and_another_seed(build: Callable[[int, int], Config]) -> None:
    config = build(1000, 5)
    assert (config.labels, config.seed) == (1000, 5)
    assert "1000" in config.name.split("-")
    assert (stl10(fold=3, seed=5).fold, stl10(fold=3, seed=5).seed) == (3, 5)


def test_own_data_has_these_numbers_and_gives_the_run_its_name(tmp_path: Path) -> None:
    expected = "data=birds labels=None backbone=auto norm_momentum=0.01 steps=4096 epoch=128 ema_ramp=True"
    assert differences(own("birds")) == set(expected.split())
    (tmp_path / "shots.2024").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    named = {data: own(str(tmp_path / data)).name for data in ("shots.2024", "list.csv", "loop", "a\x1b\nb")}
    assert named == {"shots.2024": "shots.2024", "list.csv": "list", "loop": "loop", "a\x1b\nb": "a__b"}
