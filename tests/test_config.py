"""Configs: JSON and back, checks that name field and allowed values."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any, Literal, Optional, Union

import numpy as np
import pytest

from normatch.augment import AugmentConfig
from normatch.config import Config, flat, to_json
from normatch.errors import UserError
from normatch.methods import Settings, methods
from normatch.methods.fixmatch import FixMatchSettings
from normatch.methods.normatch import NorMatchSettings
from normatch.methods.parts.groups import OptimConfig
from normatch.methods.supervised import Supervised
from normatch.methods.uda import UDASettings
from normatch.recipes import own, recipes


def through_json(config: Config) -> Config:
    return Config.from_json(json.loads(json.dumps(to_json(config))))


def test_another_method_brings_its_own_settings_and_keeps_what_was_changed() -> None:
    assert Config().replace(method="fixmatch").settings == FixMatchSettings()
    changed = Config(settings=NorMatchSettings(passes="shared", decide_after=0.5))
    assert changed.replace(method="fixmatch").settings == FixMatchSettings(passes="shared")
    assert changed.replace(method="supervised").settings == Settings()
    assert changed.replace(method="mixmatch").settings == methods.get("mixmatch").Settings(), "it has no shared passes"
    both = Config(method="fixmatch", settings=FixMatchSettings(consensus="nfc", disagree="drop"))
    assert both.replace(method="uda").settings == UDASettings(consensus="nfc", disagree="drop")


@pytest.mark.parametrize("recipe", recipes.names())
def test_every_method_can_be_trained_by_every_recipe(recipe: str) -> None:
    for name, method in methods.items():
        config = recipes.get(recipe).build().replace(method=name)
        config.augment.must_show({*method.views.labelled, *method.views.unlabelled}, name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"device": "tpu"}, "device is 'tpu': choose from auto, cpu, cuda"),
        ({"steps": 1.5}, "steps is 1.5: give int"),
        ({"steps": True}, "steps is True: give int"),
        ({"steps": np.float64(5)}, "steps is 5.0: give int"),
        ({"steps": 0}, "steps is 0: give a whole number from 1 to 2,147,483,647"),
        ({"labels": "many"}, "labels is 'many': give int or None"),
        ({"settings": NorMatchSettings(disagree="max")}, "settings.disagree is 'max': choose from min, drop"),  # type: ignore[arg-type]
        (
            {"settings": NorMatchSettings(flow_layers=2**31)},
            "settings.flow_layers is 2147483648: give a whole number up",
        ),
        ({"settings": NorMatchSettings(num_weight=math.nan)}, "settings.num_weight is nan: give a finite number"),
        ({"optim": OptimConfig(lr=math.inf)}, "optim.lr is inf: give a finite number"),
        ({"optim": OptimConfig(lr=-1)}, "optim.lr is -1: give a positive number"),
        ({"optim": OptimConfig(muon=1)}, "optim.muon is 1: give a share from 0"),
        ({"optim": OptimConfig(cosine=0.8)}, "optim.cosine is 0.8: give a number from 0"),
        ({"optim": OptimConfig(weight_decay=-1)}, "optim.weight_decay is -1: give"),
        ({"norm_momentum": -0.1}, "norm_momentum is -0.1: give a number from 0 to 1"),
        ({"optim": OptimConfig(backbone_lr=0.0)}, "optim.backbone_lr is 0.0: give a positive number"),
        ({"optim": OptimConfig(backbone_lr=0.1, muon=0.1)}, "optim.backbone_lr is 0.1: give either it or optim.muon"),
        ({"start": Path("runs/a"), "freeze": True}, "start is runs/a: give either it or freeze"),
        ({"validation": 1.5}, "validation is 1.5: give a share"),
        ({"ema": 2}, "ema is 2: give a number from 0"),
        ({"seed": -1}, "seed is -1: give"),
        ({"name": " "}, "name is ' ': give a name"),
        ({"name": "../x"}, "name is '../x': give a name without slashes"),
        ({"name": "a\x1b[2J"}, r"name is 'a\x1b[2J': give a name without"),
        ({"fold": 0, "labelled": ("a.txt",)}, "fold is 0: give either it or labelled"),
        ({"method": "nomatch"}, "unknown method 'nomatch'"),
        ({"method": ["normatch"]}, "method is ['normatch']: give a name"),
        ({"method": "fixmatch", "settings": NorMatchSettings()}, "method 'fixmatch' takes FixMatchSettings"),
        ({"augment": AugmentConfig(cutout="half")}, "augment.cutout is 'half': give float"),  # type: ignore[arg-type]
        ({"augment": AugmentConfig(cutout=2)}, "augment.cutout is 2: allowed is 0 to 1"),
        ({"augment": None}, "augment is None: give AugmentConfig"),
        ({"unlabelled": 3}, "unlabelled is 3: give Path or None"),
    ],
)
def test_errors_name_the_field_its_value_and_what_is_allowed(change: dict[str, Any], message: str) -> None:
    for make in (Config, Config().replace):
        with pytest.raises(UserError) as error:
            make(**change)
        assert message in str(error.value)


def method_with(monkeypatch: pytest.MonkeyPatch, kind: Any, default: Any = None) -> Any:
    """The settings of a method "odd", whose only setting ``x`` has this annotation."""
    choice = ("x", kind, dataclasses.field(default_factory=lambda: default))
    settings = dataclasses.make_dataclass("OddSettings", [choice], bases=(Settings,), frozen=True)
    monkeypatch.setattr(methods, "_things", dict(methods.items()))
    methods.add("odd", type("Odd", (Supervised,), {"Settings": settings}))
    return settings


def test_a_setting_that_would_not_be_stored_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgotten(Settings):
        weight: float = 1.0

    monkeypatch.setattr(methods, "_things", dict(methods.items()))
    methods.add("odd", type("Odd", (Supervised,), {"Settings": Forgotten}))
    with pytest.raises(UserError, match=r"Forgotten.weight is no setting of method 'odd': write @dataclass"):
        Config(method="odd")


@dataclasses.dataclass(frozen=True)
class Inner:
    """A dataclass as a setting."""

    size: int = 1


STORED: list[tuple[Any, list[Any], list[Any]]] = [
    (tuple[float, ...], [(), (0.1, 2)], [[0.1], (0.1, "a"), (0.1, math.nan), (True,), 0.1, None]),
    (tuple[int, str], [(1, "a")], [(1,), (1, "a", "b"), ("a", 1)]),
    (tuple[tuple[Path, ...], ...], [((Path("a"),), ())], [(Path("a"),)]),
    (list[int], [[], [1, 2]], [(1,), [1.5]]),
    (list[Literal["a", "b"]], [["a", "b"]], [["c"]]),
    (dict[str, float], [{}, {"a": 0.5}], [{"a": "b"}, {1: 0.5}]),
    (Literal["a", "b"] | None, [None, "a"], ["c", 1]),
    (Optional[Literal["a", "b"]], [None, "b"], ["c"]),  # noqa: UP045
    (Union[str, float], ["a", 1, 0.5], [None, True]),  # noqa: UP007
    (Literal["auto"] | float, ["auto", 0.5], ["none"]),
    (tuple[Path, ...] | None, [None, (Path("a"),)], [("a", 1)]),
    (Path, [Path("a")], [1]),
    (Inner, [Inner(2)], [AugmentConfig(), None]),
]


@pytest.mark.parametrize(("kind", "good", "bad"), STORED, ids=lambda kind: str(kind)[:40])
def test_a_setting_of_any_of_these_types_is_checked_and_survives_json(
    kind: Any, good: list[Any], bad: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = method_with(monkeypatch, kind, good[0])
    for x in good:
        config = Config(method="odd", settings=settings(x))
        back = through_json(config)
        assert back == config
        assert type(back.settings.x) is type(x)  # type: ignore[attr-defined]
    for x in bad:
        with pytest.raises(UserError, match=r"^settings.x is .*: (give|choose from) "):
            Config(method="odd", settings=settings(x))


@pytest.mark.parametrize("stored", [3, "ab", [1, 2, 3]])
def test_a_stored_tuple_of_another_length_is_named(stored: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    method_with(monkeypatch, tuple[int, int], (1, 2))
    with pytest.raises(UserError) as error:
        Config.from_json({"method": "odd", "settings": {"x": stored}})
    assert str(error.value) == f"settings.x is {stored!r}: give tuple[int, int]"


def test_an_unknown_field_is_an_error() -> None:
    choices = "backbone_lr, cosine, lr, momentum, muon, weight_decay"
    with pytest.raises(UserError, match=f"unknown field optim.speed: choose from {choices}"):
        Config.from_json({"optim": {"speed": 1}})


def test_places_are_given_as_text_or_as_paths() -> None:
    as_text = Config(data="pets", unlabelled="more", data_root="root", labelled=["a", "b"])  # type: ignore[arg-type]
    places: dict[str, Any] = {"data": Path("pets"), "unlabelled": Path("more"), "data_root": Path("root")}
    as_paths = Config(**places, labelled=(Path("a"), Path("b")))
    assert as_text == as_paths == through_json(as_paths)
    assert (as_text.data, as_text.unlabelled, as_text.data_root) == ("pets", Path("more"), Path("root"))
    assert Config(labelled="a").labelled == (Path("a"),)  # type: ignore[arg-type]
    assert own(Path("pets")) == own("pets")


def test_numpy_s_numbers_become_python_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config(
        steps=np.int64(5),  # type: ignore[arg-type]
        test_share=np.float32(0.25),  # type: ignore[arg-type]
        ema_ramp=np.bool_(True),  # type: ignore[arg-type]
        backbone=np.str_("mlp"),
        settings=NorMatchSettings(num_weight=np.float32(0.5), alignment=np.bool_(False)),  # type: ignore[arg-type]
        augment=AugmentConfig(ops=np.int8(1)),  # type: ignore[arg-type]
        optim=OptimConfig(lr=np.float64(0.5)),
    )
    assert not [name for name, value in flat(to_json(config)).items() if isinstance(value, np.generic)]
    assert (config.steps, config.test_share, config.ema_ramp, config.augment.ops) == (5, 0.25, True, 1)
    assert through_json(config) == config
    settings = method_with(monkeypatch, tuple[float, ...])
    odd = Config(method="odd", settings=settings((np.float32(0.5), np.int64(1))))
    assert json.dumps(to_json(odd.settings)) == '{"x": [0.5, 1]}'
