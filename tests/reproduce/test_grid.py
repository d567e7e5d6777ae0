"""Grids: each run once, under a name that says what it is."""

import functools
from pathlib import Path

import pytest

from normatch.config import Config, to_json
from normatch.errors import UserError
from normatch.recipes import recipes
from normatch.reproduce.budget import Budget
from normatch.reproduce.grid import Planned, keep, plan_runs, stand_in_for
from normatch.reproduce.paper import STUDIES, find_studies
from tests.reproduce.conftest import ALL_TRIALS

BUDGETS = ["full", "300", "quick", "20480steps", "524288steps"]
MOVABLE = [study for study in STUDIES.values() if study.movable]
DATA = sorted({recipe.build().data for _, recipe in recipes.items()})


@functools.cache
def plan(name: str, *seeds: int, budget: str = "quick", stand_in: str | None = None) -> list[Planned]:
    studies = [study for study in find_studies(name) if study.movable or stand_in is None]
    return plan_runs(studies, seeds or (0,), Budget.parse(budget), Path("out"), stand_in=stand_in)


def unnamed(run: Planned) -> Config:
    return run.config.replace(name="any")


@pytest.mark.parametrize("stand_in", [None, "digits-40"])
@pytest.mark.parametrize("budget", BUDGETS)
def test_a_grid_has_each_run_once(budget: str, stand_in: str | None) -> None:
    runs = plan("all", 0, 1, budget=budget, stand_in=stand_in)
    assert len({run.name for run in runs}) == len(runs)
    assert len({repr(unnamed(run)) for run in runs}) == len(runs)
    assert {run.folder for run in runs} == {Path("out/runs") / run.name for run in runs}


@pytest.mark.parametrize("budget", BUDGETS)
def test_a_grid_leaves_no_trial_out(budget: str) -> None:
    planned = [repr(unnamed(run)) for run in plan("all", 4, budget=budget)]
    wanted = {repr(Budget.parse(budget).apply(trial, 4).replace(name="any")) for trial in ALL_TRIALS}
    assert set(planned) == wanted


def test_a_name_tells_recipe_trial_steps_and_seed() -> None:
    names = [run.name for run in plan("table5", 7, budget="full")]
    assert names == [
        "cifar10-40-ncue-num-307200-seed7",
        "cifar10-40-normatch-307200-seed7",
        "cifar10-40-normatch-1048576-seed7",
    ]
    assert [run.name for run in plan("table5", 7, stand_in="digits-40")] == [
        "digits-40-ncue-num-60-seed7",
        "digits-40-normatch-60-seed7",
    ]


@pytest.mark.parametrize("data", DATA)
def test_a_name_means_the_same_run_whatever_else_is_planned(data: str) -> None:
    recipe, _ = stand_in_for(data, MOVABLE)
    for budget in ("full", "20480steps"):
        own = {run.name: unnamed(run) for run in plan("all", budget=budget)}
        for run in plan("all", budget=budget, stand_in=recipe):
            assert unnamed(run) == own.get(run.name, unnamed(run)), run.name


def test_seeds_come_one_after_the_other_each_in_the_order_of_the_tables() -> None:
    runs = plan("table1", 2, 0, 1)
    assert [run.config.seed for run in runs] == [2] * 4 + [0] * 4 + [1] * 4
    assert [run.trial.name for run in runs] == ["fixmatch", "ncue", "ncue-drop", "ncue-num"] * 3
    assert all(run.recipe == "cifar10-40" for run in runs)
    seeds = [run.config.seed for run in plan("all", 2, 0)]
    assert seeds == sorted(seeds, reverse=True)


def test_minutes_give_each_recipe_its_steps() -> None:
    in_time = {recipe: 1000 * i for i, recipe in enumerate(recipes.names(), 1)}
    runs = plan_runs(find_studies("table6"), [0], Budget.parse("5"), Path(), steps_in_time=in_time)
    assert {run.recipe: run.config.steps for run in runs} == {
        recipe: in_time[recipe] for recipe in in_time if any(run.recipe == recipe for run in runs)
    }
    assert len(runs) == 14


def test_where_to_train_goes_into_every_config(tmp_path: Path) -> None:
    runs = plan_runs(find_studies("table7"), [0], Budget.parse("full"), Path(), device="cpu", data_root=tmp_path)
    assert [(run.config.device, run.config.data_root) for run in runs] == [("cpu", tmp_path)] * 2


def test_a_run_says_how_far_it_is(tmp_path: Path) -> None:
    (run,) = plan_runs(find_studies("figure3"), [0], Budget.parse("20480steps"), tmp_path)
    assert (run.begun, run.finished, run.steps_done()) == (False, False, 0)
    (run.folder / "checkpoint").mkdir(parents=True)
    (run.folder / "config.json").touch()
    assert (run.begun, run.finished, run.steps_done()) == (True, False, 0)
    (run.folder / "result.json").touch()
    assert (run.begun, run.finished, run.steps_done()) == (True, True, 20480)


def test_without_other_data_nothing_stands_in() -> None:
    assert stand_in_for(None, find_studies("all")) == (None, tuple(STUDIES.values()))


def test_a_stand_in_takes_what_is_about_the_method() -> None:
    recipe, studies = stand_in_for("digits", find_studies("all"))
    assert recipe == "digits-40"
    assert {study.name for study in STUDIES.values()} - {study.name for study in studies} == {
        *("table6", "table7", "fast")
    }


def test_a_study_of_one_data_set_may_be_given_it() -> None:
    assert stand_in_for("cifar10", find_studies("fast")) == (None, find_studies("fast"))
    with pytest.raises(UserError, match="fast is about its own data"):
        stand_in_for("digits", find_studies("fast"))


@pytest.mark.parametrize("data", DATA)
def test_a_stand_in_has_as_few_labels_as_there_are_recipes_for(data: str) -> None:
    found, studies = stand_in_for(data, find_studies("all"))
    configs = {name: recipe.build() for name, recipe in recipes.items() if recipe.build().data == data}
    fewest = min((config.labels for config in configs.values() if config.labels), default=None)
    assert configs[found or "cifar10-40"].labels == fewest
    assert list(studies) == MOVABLE


def test_a_recipe_stands_in_by_name() -> None:
    found, studies = stand_in_for(None, find_studies("all"), "svhn-40")
    assert found == "svhn-40"
    assert list(studies) == MOVABLE
    (config,) = (run.config for run in plan("table1", 3, budget="full", stand_in=found) if run.trial.name == "ncue-num")
    other = recipes.get(found).build()
    assert (config.backbone, config.steps, config.optim, config.labels, config.seed) == (
        *(other.backbone, 300 * other.epoch, other.optim, 40),
        3,
    )
    settings = to_json(config)["settings"]
    assert (settings["passes"], settings["pseudo_label"]) == ("joint", "onehot")
    assert stand_in_for(None, find_studies("table1"), "cifar10-40") == (None, find_studies("table1"))


@pytest.mark.parametrize(
    ("data", "name", "recipe", "said"),
    [
        ("digits", "table1", "digits-40", "data is 'digits' and recipe 'digits-40': give one of them"),
        (None, "table6", "digits-40", "table6 is about its own recipes, not digits-40: leave --recipe out"),
        (None, "table6", "cifar10-40", "table6 is about its own recipes, not cifar10-40: leave --recipe out"),
        (None, "table1", "digits-4", "unknown recipe 'digits-4'"),
        (
            *(None, "table1", "cifar10-40-fast"),
            r"'cifar10-40-fast' cannot stand in for table1, where ncue has other settings \(settings.decide_after is "
            r"0.6, .+\): choose another recipe, such as cifar10-40",
        ),
    ],
)
def test_a_recipe_that_cannot_stand_in(data: str | None, name: str, recipe: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        stand_in_for(data, find_studies(name), recipe)


@pytest.mark.parametrize("recipe", sorted({*recipes.names()} - {"cifar10-40-fast"}))
def test_every_other_recipe_can_stand_in(recipe: str) -> None:
    found, studies = stand_in_for(None, find_studies("all"), recipe)
    assert found == (None if recipe == "cifar10-40" else recipe)
    assert list(studies) == MOVABLE


def test_the_papers_own_data_is_no_stand_in() -> None:
    assert stand_in_for("cifar10", find_studies("table1")) == (None, find_studies("table1"))


def test_data_that_cannot_stand_in_is_named() -> None:
    with pytest.raises(UserError) as error:
        stand_in_for("birds", find_studies("table1"))
    assert all(word in str(error.value) for word in ("'birds'", *DATA))
    for name in ("table6", "table7"):
        with pytest.raises(UserError, match=rf"{name} is about its own data and cannot be trained on digits: leave"):
            stand_in_for("digits", find_studies(name))


def test_words_choose_runs() -> None:
    runs = plan("table1", 0, 1)
    assert keep(runs, []) == runs
    assert [run.name for run in keep(runs, ["fixmatch"])] == [f"cifar10-40-fixmatch-1024-seed{s}" for s in (0, 1)]
    assert keep(runs, ["ncue-drop", "seed1"]) == [run for run in runs if "drop" in run.name or run.config.seed == 1]


@pytest.mark.parametrize(
    ("words", "unknown"),
    [(["mixmatch", "dash"], "mixmatch or dash"), (["ncue", "ncue-dorp"], "ncue-dorp"), (["ncue", ""], "''")],
)
def test_words_that_choose_nothing_are_named_with_what_there_is(words: list[str], unknown: str) -> None:
    with pytest.raises(UserError) as error:
        keep(plan("table1", 0, 1), words)
    assert str(error.value) == (
        f"no run is called {unknown}: there are cifar10-40-fixmatch-1024, cifar10-40-ncue-1024, "
        "cifar10-40-ncue-drop-1024, cifar10-40-ncue-num-1024"
    )
