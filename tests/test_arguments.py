"""The command line of a config is the inverse of parsing one."""

import shlex
from pathlib import Path

import numpy as np
import pytest
from tyro.conf import Positional

from normatch.arguments import option, parse, parse_run
from normatch.augment import AugmentConfig
from normatch.command import command_of
from normatch.config import Config
from normatch.data import Split
from normatch.errors import UserError
from normatch.methods.fixmatch import FixMatchSettings
from normatch.methods.normatch import NorMatchSettings
from normatch.methods.parts.groups import OptimConfig
from normatch.recipes import own, recipes
from normatch.training.run import Run

CONFIGS = {name: recipe.build() for name, recipe in recipes.items()} | {
    "another seed": recipes.get("digits-40").build().replace(seed=3, steps=7, labels=None),
    "another method": recipes.get("digits-40").build().replace(method="fixmatch"),
    "switches": recipes.get("cifar10-40")
    .build()
    .replace(
        augment=AugmentConfig(flip=False, pad=2),
        optim=OptimConfig(lr=0.01),
        settings=NorMatchSettings(stop_gradient=False, alignment=False, num_weight=0.0),
        deterministic=True,
        include_labelled=False,
    ),
    "own data": own("my pictures/of cats.npz").replace(image_size=32),
    "own data, other method": own("pets").replace(method="fixmatch", settings=FixMatchSettings(threshold=0.8)),
    "named items": recipes.get("digits-40").build().replace(labelled=("runs/first one", "next.csv"), labels=52),
    "made in Python": Config(name="mine", data="pets", labels=None, test_share=0.1),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_the_command_of_a_config_gives_that_config(case: str) -> None:
    program, verb, *argv = shlex.split(command_of(CONFIGS[case]))
    assert (program, verb) == ("normatch", "train")
    assert parse_run("train", argv, {})[0] == CONFIGS[case]


def test_commands_are_short() -> None:
    assert command_of(CONFIGS["digits-40"]) == "normatch train digits-40"
    assert command_of(CONFIGS["another method"]) == "normatch train digits-40 --method fixmatch"


def test_nothing_of_own_data_would_be_chosen_anew() -> None:
    """Where a recipe is named, nothing is."""
    argv = shlex.split(command_of(own("pets").replace(steps=4096, seed=3)))[2:]
    assert parse_run("train", argv, {})[1].recipe == argv[0]


def test_what_follows_a_switch_may_be_called_like_a_value(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def verb(run: Positional[str], force: bool = False) -> None:
        called.append((run, force))

    called: list[tuple[str, bool]] = []
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="--force is '1', but takes no value"):
        parse(verb, "predict", ["--force", "1"])
    Path("1").mkdir()
    parse(verb, "predict", ["--force", "1"])
    assert called == [("1", True)]


def test_own_data_is_no_recipe_whatever_its_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_run("train", ["--data", "svhn-40"], {})[1].recipe is None
    assert parse_run("train", ["svhn-40"], {})[1].recipe == "svhn-40"
    assert parse_run("train", [], {})[1].recipe == "digits-40"
    assert own(".").name == tmp_path.name
    assert own("..").name == tmp_path.parent.name


def test_a_data_set_without_a_recipe_gets_its_own_settings_and_name() -> None:
    config, given = parse_run("train", ["--data", "mnist", "--steps", "7"], {})
    assert config == own("mnist").replace(steps=7)
    assert config.name == "mnist"
    assert given.recipe is None
    assert parse_run("train", ["--data", "digits"], {})[0] == recipes.get("digits-40").build()
    assert parse_run("train", ["digits-40", "--data", "mnist"], {})[1].recipe == "digits-40"


@pytest.mark.parametrize("argv", [["digits-40"], [], ["--seed", "7", "digits-40"]])
def test_a_resumed_run_gives_the_defaults(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, argv: list[str]) -> None:
    monkeypatch.chdir(tmp_path)
    begun = recipes.get("digits-40").build().replace(steps=30, seed=7)
    Run.create(tmp_path / "runs" / "digits-40", begun, Split(*(np.arange(1) for _ in range(3))))
    flag = {"resume": option(bool, False, "")}
    assert parse_run("train", [*argv, "--resume"], flag)[0] == begun
    with pytest.raises(
        UserError, match="runs/digits-40 is a run on digits, cifar10-40 is on cifar10: resume it without"
    ):
        parse_run("train", ["cifar10-40", "--name", "digits-40", "--resume"], flag)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (["--settings.consensus", "min"], "train: method 'fixmatch' has no setting consensus, normatch has it"),
        (["--settings.threshold", "high"], "train: --settings.threshold is 'high': give a number"),
    ],
)
def test_the_settings_of_a_resumed_run_are_those_of_its_method(
    setting: list[str], message: str, tmp_path: Path
) -> None:
    begun = recipes.get("digits-40").build().replace(method="fixmatch")
    Run.create(tmp_path / "run", begun, Split(*(np.arange(1) for _ in range(3))))
    options = {"resume": option(bool, False, ""), "out": option(Path | None, None, "")}
    with pytest.raises(UserError, match=message):
        parse_run("train", ["--out", str(tmp_path / "run"), "--resume", *setting], options)
