"""Configs: JSON and back, checks that name field and allowed values."""

import json
from typing import Any

import numpy as np
import pytest

from normatch.augment import AugmentConfig
from normatch.config import Config, flat, from_json, to_json
from normatch.errors import UserError
from normatch.methods import Settings
from normatch.methods.fixmatch import FixMatchSettings
from normatch.methods.normatch import NorMatchSettings
from normatch.methods.parts.groups import OptimConfig
from normatch.recipes import recipes


@pytest.mark.parametrize("name", recipes.names())
def test_every_recipe_survives_json(name: str) -> None:
    config = recipes.get(name).build()
    assert config.name == name
    assert from_json(Config, json.loads(json.dumps(to_json(config)))) == config


@pytest.mark.parametrize("name", recipes.names())
def test_every_recipe_names_things_that_exist(name: str) -> None:
    from normatch.data import sources
    from normatch.nets import backbones

    config = recipes.get(name).build()
    source = sources.get(config.data)
    assert backbones.get(config.backbone).supports(source.shape)
    assert config.labels is None or config.labels % source.classes == 0


def test_the_papers_numbers_are_the_defaults() -> None:
    config = recipes.get("cifar10-40").build()
    assert (config.steps, config.epoch, config.batch, config.ratio, config.ema) == (2**20, 1024, 64, 7, 0.999)
    assert (config.optim.lr, config.optim.momentum, config.optim.weight_decay) == (0.03, 0.9, 5e-4)
    assert config.settings == NorMatchSettings(
        pseudo_label="soft",
        alignment=True,
        alignment_batches=32,
        consensus="min",
        auxiliary="nfc",
        head="softmax",
        stop_gradient=True,
        num_weight=1e-6,
        flow_layers=6,
        flow_hidden=32,
        flow_lr=1e-3,
        flow_clip=50.0,
        flow_ramp=5,
        passes="joint",
        means="zero",
    )


def test_another_method_brings_its_own_settings_and_keeps_what_was_changed() -> None:
    assert Config().replace(method="fixmatch").settings == FixMatchSettings(
        threshold=0.95, pseudo_label="onehot", alignment=False, alignment_batches=32, passes="joint"
    )
    changed = Config(settings=NorMatchSettings(passes="split", consensus="drop"))
    assert changed.replace(method="fixmatch").settings == FixMatchSettings(passes="split")
    assert changed.replace(method="supervised").settings == Settings()
    with pytest.raises(UserError, match="takes FixMatchSettings"):
        Config(method="fixmatch", settings=NorMatchSettings())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"device": "tpu"}, "device is 'tpu': choose from auto, cpu, cuda"),
        ({"steps": 1.5}, "steps is 1.5: give int"),
        ({"steps": True}, "steps is True"),
        ({"labels": "many"}, "labels is 'many': give int or None"),
        ({"settings": NorMatchSettings(consensus="max")}, "settings.consensus is 'max': choose from min, drop"),  # type: ignore[arg-type]
        ({"norm_momentum": 0.0}, "norm_momentum is 0.0"),
        ({"method": "nomatch"}, "unknown method 'nomatch'"),
        ({"steps": np.float64(5)}, "steps is 5.0: give int"),
        ({"batch": np.bool_(True)}, "batch is True: give int"),
        ({"settings": NorMatchSettings(num_weight=float("nan"))}, "settings.num_weight is nan: give a finite number"),
        ({"settings": NorMatchSettings(flow_clip=float("nan"))}, "settings.flow_clip is nan: give a finite number"),
        ({"settings": NorMatchSettings(flow_lr=float("inf"))}, "settings.flow_lr is inf: give a finite number"),
        ({"optim": OptimConfig(lr=float("inf"))}, "optim.lr is inf: give a finite number"),
        ({"optim": OptimConfig(weight_decay=float("-inf"))}, "optim.weight_decay is -inf: give a finite number"),
        ({"ema": float("nan")}, "ema is nan: give a finite number"),
    ],
)
def test_errors_name_the_field_and_what_is_allowed(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        Config().replace(**change)
    assert message in str(error.value)


def test_an_unknown_field_is_an_error() -> None:
    with pytest.raises(UserError, match=r"unknown field optim.speed: choose from cosine, lr, momentum, weight_decay"):
        from_json(Config, {"optim": {"speed": 1}})


def test_numpy_s_numbers_become_python_s_own() -> None:
    config = Config(
        steps=np.int64(5),  # type: ignore[arg-type]
        test_share=np.float32(0.25),  # type: ignore[arg-type]
        ema_ramp=np.bool_(True),  # type: ignore[arg-type]
        backbone=np.str_("mlp"),
        settings=NorMatchSettings(num_weight=np.float32(0.5), alignment=np.bool_(False)),  # type: ignore[arg-type]
        augment=AugmentConfig(ops=np.int8(1)),  # type: ignore[arg-type]
        optim=OptimConfig(lr=np.float64(0.5)),
    )
    expected = Config(
        steps=5,
        test_share=0.25,
        ema_ramp=True,
        backbone="mlp",
        settings=NorMatchSettings(num_weight=0.5, alignment=False),
        augment=AugmentConfig(ops=1),
        optim=OptimConfig(lr=0.5),
    )
    assert config == expected
    assert not [name for name, value in flat(to_json(config)).items() if isinstance(value, np.generic)]
    assert from_json(Config, json.loads(json.dumps(to_json(config)))) == expected
