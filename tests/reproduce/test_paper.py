"""The paper's numbers as its source has them, and the runs that answer them."""

import dataclasses
import re
from pathlib import Path

import pytest

from normatch.methods import methods
from normatch.recipes import recipes
from normatch.reproduce.paper import FIXED_GRID, OURS, STUDIES, Measure, Score, Trial
from tests.reproduce.conftest import ALL_TRIALS

Column = Measure | str

COLUMNS: dict[str, tuple[Column, ...]] = {
    "table1": ("accuracy",),
    "table2": ("weights", "products", "accuracy"),
    "table3": ("confident", "accuracy"),
    "table4": ("accuracy",),
    "table5": ("epochs", "accuracy"),
    "table6": ("accuracy",) * 7,
    "table7": ("accuracy",),
}
"""What the columns of each table count, behind the name of the row."""

NUMBER = re.compile(r"(\d+\.?\d*)M?(?:±(\d+\.\d+))?")


@pytest.fixture(scope="module")
def printed() -> dict[str, list[list[str]]]:
    """The cells of the paper's tables, without their looks."""
    path = Path(__file__).parents[3] / "shared" / "paper" / "normatch.tex"
    if not path.is_file():
        pytest.skip(f"the paper's source is not at {path}")
    bodies = re.findall(r"\\begin\{tabular\}\{\w+\}(.*?)\\end\{tabular\}", path.read_text(encoding="utf-8"), re.DOTALL)
    return {name: read_tabular(body) for name, body in zip(COLUMNS, bodies, strict=True)}


def read_tabular(body: str) -> list[list[str]]:
    body = re.sub(r"\\(?:\w+rule|hline)(?:\(\w+\)\{[\d-]+\})?", "", body)
    body = re.sub(r"\\cellcolor\[HTML\]\{\w+\}|~?\\citep?\{\w+\}|\\textbf\b|\\(?=#)", "", body)
    body = re.sub(r"[${}]", "", body.replace(r"$\pm$", "±"))
    return [[cell.strip() for cell in row.split("&")] for row in re.split(r"\\\\", body) if row.strip()]


def numbers(table: list[list[str]]) -> list[list[Score | None]]:
    """The rows that hold nothing but numbers behind their name; – is None."""
    rows = [[None if cell == "-" else NUMBER.fullmatch(cell) for cell in row[1:]] for row in table]
    return [
        [found and Score(float(found[1]), float(found[2]) if found[2] else None) for found in cells]
        for row, cells in zip(table, rows, strict=True)
        if all(found or cell == "-" for cell, found in zip(row[1:], cells, strict=True))
    ]


@pytest.mark.parametrize("name", COLUMNS)
def test_every_number_is_the_papers(name: str, printed: dict[str, list[list[str]]]) -> None:
    rows = numbers(printed[name])
    assert len(rows) == len(STUDIES[name].rows)
    for row, wanted in zip(STUDIES[name].rows, rows, strict=True):
        by_column = list(zip(COLUMNS[name], wanted, strict=True))
        cells: list[dict[Column, Score]] = (
            [{"accuracy": score} if score else {} for _, score in by_column]
            if name == "table6"
            else [{column: score for column, score in by_column if score and column in ("accuracy", "confident")}]
        )
        assert [cell.paper for cell in row.cells] == cells, row.name


def test_the_epochs_of_table_5_and_the_data_sets_of_table_6_are_the_trials(printed: dict[str, list[list[str]]]) -> None:
    trials = [row.cells[0].trial for row in STUDIES["table5"].rows]
    assert [trial.epochs for trial in trials] == [int(row[1]) for row in printed["table5"][1:]]
    labels = [int(head.removesuffix(" labels")) for head in printed["table6"][1][1:]]
    study = STUDIES["table6"]
    assert [int(column.split(", ")[1]) for column in study.columns] == labels
    for row in study.rows:
        for cell, column in zip(row.cells, study.columns, strict=True):
            assert cell.trial.recipe == column.lower().replace("-", "").replace(", ", "-")
            assert cell.trial.method == OURS[row.name]


def test_all_methods_are_compared() -> None:
    """Each of the package, and FixMatch first, over which the gains are."""
    study = STUDIES["methods"]
    assert study.rows[0].name == "FixMatch"
    ours = {name for name, method in methods.items() if method.__module__.startswith("normatch.")}
    assert {trial.method for trial in study.trials()} == ours


def test_every_trial_is_a_run_that_can_be_shortened() -> None:
    for trial in ALL_TRIALS:
        config = trial.config(0)
        assert config.steps == min(trial.epochs * config.epoch, recipes.get(trial.recipe).build().steps)
        assert trial.config(0, 10**8) == config
        steps = min(10_240, config.steps // 2)
        short = trial.config(0, steps)
        assert (short.steps, short.settings) == (steps, config.settings)
        # As many epochs as the paper's analysis, or as there are.
        assert short.steps / short.epoch == pytest.approx(min(300, config.steps / config.epoch), rel=0.02)
        assert short.steps / (short.evaluate_every or 1) >= min(20, config.steps / config.epoch)
        config.check()
    long = Trial("normatch", epochs=1024).config(0, 600 * 1024)
    assert (long.steps, long.epoch) == (600 * 1024, 600), "beyond 300 epochs the whole schedule is scaled"


def test_another_data_set_can_stand_in() -> None:
    for study in [study for study in STUDIES.values() if study.movable]:
        moved = study.on("digits-40")
        assert not any(cell.paper for row in moved.rows for cell in row.cells)
        for here, there in zip(study.trials(), moved.trials(), strict=True):
            assert (there.config(3).data, there.config(3).steps, there.config(3).seed) == ("digits", 600, 3)
            assert (there.config(3).settings, there.config(3).backbone) == (here.config(3).settings, "small-wide")


def test_a_name_means_one_thing_and_one_thing_has_one_name() -> None:
    named = {(t.recipe, t.name, repr(t.config(0).replace(steps=1))) for t in ALL_TRIALS}
    assert len({(recipe, name) for recipe, name, _ in named}) == len(named)
    assert len({(recipe, meant) for recipe, _, meant in named}) == len(named)


def test_the_analysis_has_neither_alignment_nor_soft_pseudo_labels() -> None:
    for name in ("table1", "table2", "table3", "table4", "figure3", "figure4", "figure5"):
        for row in STUDIES[name].rows:
            trial = row.cells[0].trial
            settings = dataclasses.asdict(trial.config(0).settings)
            chosen = settings["pseudo_label"], settings["alignment"], settings["passes"]
            assert chosen == ("onehot", False, "shared" if "shared" in trial.name else "joint"), trial.name
            if name == "figure5":
                assert settings["num_weight"] == float(row.name.removeprefix("λ = "))


def test_stl10_takes_the_fold_of_the_seed_and_others_draw() -> None:
    folds = {trial.recipe: trial.config(3).fold for trial in ALL_TRIALS}
    assert folds.pop("stl10-1000") == 3
    assert set(folds.values()) == {None}


def test_studies_list_each_trial_once() -> None:
    for study in STUDIES.values():
        assert {len(row.cells) for row in study.rows} == {len(study.columns)}
        listed = [(trial.recipe, trial.name, trial.epochs) for trial in study.trials()]
        assert len(set(listed)) == len(listed)


def test_the_fixed_grid_has_these_runs_in_this_order() -> None:
    configs = [trial.config(seed) for trial, seed in FIXED_GRID]
    assert len(set(map(repr, configs))) == len(configs) == 15 + 5 + 9 + 2 + 1
    assert [(config.labels, config.steps, config.seed) for config in configs] == [
        *((250, 61_440, seed) for seed in (0, 1, 2) for _ in range(5)),
        *((40, 49_152, seed) for seed in range(5)),
        *((40, 307_200, seed) for seed in (0,) * 3 + (1,) * 4 + (2,) * 4),
        (40, 307_200, 0),
    ]
    settings = [dataclasses.asdict(config.settings) for config in configs]
    assert {chosen["passes"] for chosen in settings[:-1]} == {"shared"}
    assert [(c.method, s["alignment"], s.get("threshold")) for c, s in zip(configs[:5], settings, strict=False)] == [
        ("fixmatch", False, 0.95),
        ("fixmatch", True, 0.95),
        ("fixmatch", False, 0.0),
        ("normatch", False, None),
        ("normatch", True, None),
    ]
    last = settings[-1]
    assert (last["passes"], last["stop_gradient"], last["pseudo_label"]) == ("joint", False, "onehot")
