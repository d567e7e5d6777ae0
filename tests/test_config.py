"""Configs: JSON and back, checks that name field and allowed values."""

import dataclasses
import json
import math
import shlex
from pathlib import Path
from typing import Any, Literal, Optional, Union

import numpy as np
import pytest

from normatch.arguments import parse_run
from normatch.augment import AugmentConfig
from normatch.command import command_of
from normatch.config import Config, flat, from_json, to_json
from normatch.errors import UserError
from normatch.methods import Settings, methods
from normatch.methods.fixmatch import FixMatchSettings
from normatch.methods.normatch import NorMatchSettings
from normatch.methods.parts.groups import OptimConfig
from normatch.methods.supervised import Supervised
from normatch.recipes import own, recipes


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
        decide_after=1.0,
        adaptive=False,
        num_weight=1e-6,
        flow_layers=6,
        flow_hidden=32,
        flow_lr=1e-3,
        flow_clip=50.0,
        flow_ramp=5,
        passes="joint",
        means="zero",
    )


def test_the_defaults_fit_together() -> None:
    assert Config(name="cifar10-40") == recipes.get("cifar10-40").build()


def test_another_method_brings_its_own_settings_and_keeps_what_was_changed() -> None:
    assert Config().replace(method="fixmatch").settings == FixMatchSettings(
        threshold=0.95, pseudo_label="onehot", alignment=False, alignment_batches=32, passes="joint"
    )
    changed = Config(settings=NorMatchSettings(passes="shared", consensus="drop"))
    assert changed.replace(method="fixmatch").settings == FixMatchSettings(passes="shared")
    assert changed.replace(method="supervised").settings == Settings()
    of_alignment = Config(settings=NorMatchSettings(alignment_batches=64))
    assert of_alignment.replace(method="fixmatch").settings == FixMatchSettings()
    on = Config(method="fixmatch", settings=FixMatchSettings(alignment=True, alignment_batches=64))
    assert on.replace(method="normatch").settings == NorMatchSettings(alignment_batches=64)
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


def method_with(monkeypatch: pytest.MonkeyPatch, kind: Any, default: Any = None) -> type[Settings]:
    """The settings of a method "odd", whose only setting ``x`` has this annotation."""
    choice = ("x", kind, dataclasses.field(default_factory=lambda: default))
    settings = dataclasses.make_dataclass("OddSettings", [choice], bases=(Settings,), frozen=True)
    monkeypatch.setattr(methods, "_things", dict(methods.items()))
    methods.add("odd", type("Odd", (Supervised,), {"Settings": settings}))
    return settings


def test_settings_that_would_not_be_stored_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgotten(Settings):
        weight: float = 1.0

    @dataclasses.dataclass(frozen=True)
    class Bare(Settings):
        weight: float

    monkeypatch.setattr(methods, "_things", dict(methods.items()))
    for kind, message in (
        (Forgotten, r"Forgotten.weight is no setting of method 'odd': write @dataclass\(frozen=True\) above the class"),
        (Bare, r"Bare.weight, a setting of method 'odd', has no default: give it one"),
    ):
        methods._things["odd"] = type("Odd", (Supervised,), {"Settings": kind})
        with pytest.raises(UserError, match=message):
            Config(method="odd")


@dataclasses.dataclass(frozen=True)
class Inner:
    """A dataclass as a setting."""

    size: int = 1


STORED: list[tuple[Any, list[Any], list[Any]]] = [
    (tuple[float, ...], [(), (0.1, 2)], [[0.1], (0.1, "a"), (True,), 0.1, None]),
    (tuple[int, str], [(1, "a")], [(1,), (1, "a", "b"), ("a", 1)]),
    (tuple[tuple[Path, ...], ...], [((Path("a"),), ())], [(Path("a"),)]),
    (list[int], [[], [1, 2]], [(1,), [1.5]]),
    (list[Literal["a", "b"]], [["a", "b"]], [["c"]]),
    (Literal["a", "b"] | None, [None, "a"], ["c", 1]),
    (Optional[Literal["a", "b"]], [None, "b"], ["c"]),  # noqa: UP045
    (Optional[float], [None, 1, 0.5], ["a", True]),  # noqa: UP045
    (Union[str, float], ["a", 1, 0.5], [None, True]),  # noqa: UP007
    (Literal["auto"] | float, ["auto", 0.5], ["none"]),
    (tuple[Path, ...] | None, [None, (Path("a"),)], [("a", 1)]),
    (Path, [Path("a")], [1]),
    (None, [None], [1]),
    (Inner, [Inner(2)], [AugmentConfig(), None]),
]


@pytest.mark.parametrize(("kind", "good", "bad"), STORED, ids=lambda kind: str(kind)[:40])
def test_a_setting_of_any_of_these_types_is_checked_and_survives_json(
    kind: Any, good: list[Any], bad: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = method_with(monkeypatch, kind, good[0])
    for x in good:
        config = Config(method="odd", settings=settings(x))  # type: ignore[call-arg]
        back = from_json(Config, json.loads(json.dumps(to_json(config))))
        assert back == config
        assert type(back.settings.x) is type(x)  # type: ignore[attr-defined]
    for x in bad:
        with pytest.raises(UserError, match=r"^settings.x is .*: (give|choose from) "):
            Config(method="odd", settings=settings(x))  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("kind", "x", "message"),
    [
        (tuple[float, ...], (1, "a"), "settings.x is (1, 'a'): give tuple[float, ...]"),
        (tuple[float, ...], (1.0, math.nan), "settings.x is (1.0, nan): give a finite number"),
        (Literal["a", "b"] | None, "c", "settings.x is 'c': choose from a, b, None"),
        (Optional[float], "c", "settings.x is 'c': give float or None"),  # noqa: UP045
        (dict[str, float], {}, "settings.x has type dict[str, float], which no config can hold: annotate it as bool,"),
        (Path | str, "a", "Path | str, which no config can hold: annotate it as bool,"),
        (bytes, b"", "settings.x has type bytes, which"),
        (list, [], "settings.x has type list, which"),
    ],
)
def test_the_message_on_a_setting_says_its_type(
    kind: Any, x: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = method_with(monkeypatch, kind)
    with pytest.raises(UserError) as error:
        Config(method="odd", settings=settings(x))  # type: ignore[call-arg]
    assert message in str(error.value)


@pytest.mark.parametrize("stored", [3, "ab", [1, 2, 3]])
def test_a_stored_tuple_of_another_length_is_named(stored: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    method_with(monkeypatch, tuple[int, int], (1, 2))
    with pytest.raises(UserError) as error:
        from_json(Config, {"method": "odd", "settings": {"x": stored}})
    assert str(error.value) == f"settings.x is {stored!r}: give tuple[int, int]"


def test_numpy_s_numbers_in_a_tuple_become_python_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = method_with(monkeypatch, tuple[float, ...])
    config = Config(method="odd", settings=settings((np.float32(0.5), np.int64(1))))  # type: ignore[call-arg]
    assert json.dumps(to_json(config.settings)) == '{"x": [0.5, 1]}'


def test_a_tuple_is_a_flag_of_the_command_that_trains_again(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = method_with(monkeypatch, tuple[float, ...], (0.5,))
    config = recipes.get("cifar10-40").build().replace(method="odd", settings=settings((0.1, 2.0)))  # type: ignore[call-arg]
    command = command_of(config)
    assert command == "normatch train cifar10-40 --method odd --settings.x 0.1 2.0"
    assert parse_run("train", shlex.split(command)[2:], {})[0] == config


def test_tuples_of_tuples_are_written_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = method_with(monkeypatch, tuple[tuple[int, int], ...], ((1, 2),))
    config = recipes.get("cifar10-40").build().replace(method="odd", settings=settings(((1, 2), (3, 4))))  # type: ignore[call-arg]
    command = command_of(config)
    assert command == "normatch train cifar10-40 --method odd --settings.x 1 2 3 4"
    assert parse_run("train", shlex.split(command)[2:], {})[0] == config


def test_an_unknown_field_is_an_error() -> None:
    choices = "cosine, lr, momentum, muon, weight_decay"
    with pytest.raises(UserError, match=f"unknown field optim.speed: choose from {choices}"):
        from_json(Config, {"optim": {"speed": 1}})


def test_places_are_given_as_text_or_as_paths() -> None:
    as_text = Config(data="pets", unlabelled="more", data_root="root")  # type: ignore[arg-type]
    as_paths = Config(data=Path("pets"), unlabelled=Path("more"), data_root=Path("root"))  # type: ignore[arg-type]
    assert as_text == as_paths == from_json(Config, json.loads(json.dumps(to_json(as_paths))))
    assert (as_text.data, as_text.unlabelled, as_text.data_root) == ("pets", Path("more"), Path("root"))
    assert own(Path("pets")) == own("pets")
    with pytest.raises(UserError, match="unlabelled is 3: give Path or None"):
        Config(unlabelled=3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"method": 3}, "method is 3: give a name"),
        ({"method": ["normatch"]}, r"method is \['normatch'\]: give a name"),
        ({"augment": AugmentConfig(cutout="half")}, "augment.cutout is 'half': give float"),  # type: ignore[arg-type]
        ({"augment": AugmentConfig(ops=None)}, "augment.ops is None: give int"),  # type: ignore[arg-type]
        ({"augment": AugmentConfig(cutout=2)}, "augment.cutout is 2: allowed is 0 to 1"),
        ({"augment": None}, "augment is None: give AugmentConfig"),
    ],
)
def test_values_of_another_type_are_named(given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        Config(**given)
    with pytest.raises(UserError, match=complaint):
        Config().replace(**given)


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
