"""A run as one file, the cells that results may fill, gains and verdicts."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from normatch.config import Config
from normatch.errors import UserError
from normatch.reproduce.pages import section
from normatch.reproduce.paper import STUDIES
from normatch.reproduce.results import Table, read_result, setting, verdict, write_result
from normatch.training import train
from normatch.training.run import Run
from tests.reproduce.conftest import make_result, trial_of


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, tiny_config: Config) -> Run:
    """More evaluations than those that count for the mean."""
    folder = tmp_path_factory.mktemp("trained")
    config = tiny_config.replace(
        name="tiny", steps=22, evaluate_every=1, log_every=3, checkpoint_every=22, data_root=folder / "data-lies-here"
    )
    return train(config, folder / "tiny")


@pytest.fixture(scope="module")
def file(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("results") / "tiny.json"
    write_result(run, path, whole=88)
    return path


def test_a_result_is_what_the_run_says_of_itself(run: Run, file: Path) -> None:
    fields, ended = json.loads(file.read_text()), json.loads((run.path / "result.json").read_text())
    records = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    seen = [record["test/accuracy"] for record in records if "test/accuracy" in record]
    assert len(seen) == 22
    assert fields["accuracy"] == {
        "last weights": ended["accuracy"],
        "mean of the last 20 evaluations": pytest.approx(np.mean(seen[2:])),
        "evaluations in that mean": 20,
        "best evaluation (chosen by the test set)": max(seen),
    }
    for name in ("evaluated_on", "n", "method", "seed", "steps", "seconds", "hardware", "versions", "date"):
        assert fields[name] == ended[name]
    assert fields["schedule"] == {"steps": 22, "whole": 88, "share": 0.25}
    assert fields["labelled"] == run.split.labelled.tolist()
    assert fields["unlabelled"] == len(run.split.unlabelled)
    result = read_result(file)
    assert (result.accuracy, result.failed, result.torch) == (ended["accuracy"], None, ended["versions"]["torch"])
    for name in ("loss", "test/accuracy", "pseudo/confident"):
        recorded = [(r["step"], r[name]) for r in records if r.get(name) is not None]
        assert [step for step, _ in result.curves[name]] == [step for step, _ in recorded]
        assert [v for _, v in result.curves[name]] == pytest.approx([value for _, value in recorded], rel=1e-4)
    assert result.value("confident") == 100 * result.curves["pseudo/confident"][-1][1]
    assert "data-lies-here" not in file.read_text(), "where the data is stored is left out"
    assert result.config == run.config.replace(data_root=None)


def test_a_diverged_run_is_a_result_without_an_accuracy(run: Run, tmp_path: Path) -> None:
    shutil.copytree(run.path, tmp_path / "copy", ignore=shutil.ignore_patterns("result.json", "events"))
    alarm = {"name": "not-finite", "step": 7, "message": "loss is not finite", "remedy": "train slower"}
    (tmp_path / "copy" / "warnings.json").write_text(json.dumps([alarm]))
    records = [{"step": step, "seconds": 1.0, "loss": 0.5} for step in range(1, 702)]
    (tmp_path / "copy" / "metrics.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    write_result(Run(tmp_path / "copy"), tmp_path / "copy.json", 88)
    result = read_result(tmp_path / "copy.json")
    assert (result.failed, result.accuracy, result.value("accuracy")) == ("step 7: loss is not finite", None, None)
    steps = [step for step, _ in result.curves["loss"]]
    assert (len(steps) <= 300, steps[-1]) == (True, 701), "thinned, with its end"


@pytest.mark.parametrize("changes", [{"accuracy": {"last weights": -0.1}}, {"config": {"a": 1}}, None])
def test_a_file_that_is_no_result_is_named(file: Path, tmp_path: Path, changes: dict[str, Any] | None) -> None:
    text = '{"a' if changes is None else json.dumps(json.loads(file.read_text()) | changes)
    (tmp_path / "damaged.json").write_text(text)
    with pytest.raises(UserError, match=r"damaged\.json is no result of a run"):
        read_result(tmp_path / "damaged.json")


ELSEWHERE = {"device": "cpu", "precision": "float32", "data_root": Path("x"), "evaluate_every": 7}
OTHERS: list[dict[str, Any]] = [{"batch": 32}, {"ema": 0.9}, {"epoch": 8}, {"backbone": "wrn-28-8"}, {"labels": 250}]


def test_only_results_of_the_cells_own_config_fill_it() -> None:
    trial, other = trial_of("table1", 1), trial_of("table1", 3)
    own = [make_result(trial, seed, change=ELSEWHERE, steps=2048) for seed in (1, 0)]
    foreign = [make_result(trial, 2, steps=2048, change=change) for change in OTHERS]
    table = Table(STUDIES["table1"], [*own, *foreign, make_result(other, steps=2048)])
    (runs,) = table.runs_of(trial)
    assert runs.results == (own[1], own[0])
    assert not runs.complete
    assert {setting(result.config) for result in own}.isdisjoint(setting(result.config) for result in foreign)


def test_answers_come_the_longest_first_and_one_a_seed() -> None:
    trial = trial_of("table1", 0)
    results = [make_result(trial, steps=steps) for steps in (20, None, 2048)]
    every = Table(STUDIES["table1"], results).runs_of(trial)
    assert [(runs.steps, runs.complete) for runs in every] == [(307_200, True), (2048, False), (20, False)]
    with pytest.raises(UserError, match="are results of the same run and seed"):
        Table(STUDIES["table1"], [results[0], results[0], make_result(trial, steps=20)]).runs_of(trial)


def test_gains_are_paired_by_seed_over_the_first_row() -> None:
    base, ncue = trial_of("table1", 0), trial_of("table1", 1)
    results = [make_result(base, seed, 0.5 + 0.1 * seed, steps=20) for seed in (0, 1, 2)]
    results += [make_result(ncue, seed, accuracy, steps=20) for seed, accuracy in ((2, 0.8), (0, 0.6), (5, 0.1))]
    results += [make_result(ncue, 1, None, steps=20, failed="step 7"), make_result(ncue, 0, 0.9)]
    (gain,) = Table(STUDIES["table1"], results).gains()
    assert (gain.row, gain.steps, gain.whole) == ("FixMatch + NCUE", 20, 307_200)
    assert sorted(gain.each) == pytest.approx([10, 10])
    assert gain.paper == pytest.approx(92.78 - 87.77)
    one = Table(STUDIES["table1"], [make_result(base, 0, 0.5), make_result(ncue, 0, 0.6)]).gains()[0]
    assert one.mean == pytest.approx(10)
    assert (one.interval, one.complete) == (None, True)
    # No seed is dropped: with one that diverged, there is no verdict.
    results = [make_result(trial, seed, 0.5) for trial in (base, ncue) for seed in (0, 1)]
    lost = make_result(ncue, 2, None, failed="step 7")
    assert not Table(STUDIES["table1"], [*results, make_result(base, 2), lost]).gains()[0].complete


def test_with_a_stand_in_no_number_is_the_papers(tmp_path: Path) -> None:
    study = STUDIES["table3"].on("digits-40")
    results = [make_result(trial) for trial in study.trials()]
    found = Table(study, results).to_json()
    assert [cell["paper"] for cell in found["cells"]] == [{}, {}]
    assert [cell["ours"][0]["accuracy"] for cell in found["cells"]] == [[90.0], [90.0]]
    assert "93.41" not in section(Table(study, results), "results", tmp_path)


@pytest.mark.parametrize(
    ("each", "claimed", "complete", "expected"),
    [
        ([], 5.0, True, "not run"),
        ([5.0, 5.1, 4.9], 5.0, False, "open"),
        ([5.0], 5.0, True, "open"),
        ([5.0, 5.1, 4.9], 5.0, True, "supported"),
        ([3.0, 3.1, 2.9], 5.0, True, "supported"),
        ([2.0, 2.1, 1.9], 5.0, True, "contradicted"),  # above 0, but less than half of the claim
        ([0.0, 0.3, -0.3], 5.0, True, "contradicted"),
        ([9.0, -4.0, 5.0], 5.0, True, "open"),
        ([1.0, 3.0, 2.5], 5.0, True, "open"),  # the interval ends between half of the claim and the claim
        ([-60.0, -61.0, -59.0], -64.0, True, "supported"),
        ([-2.0, 1.0, 0.0], -64.0, True, "contradicted"),
    ],
)
def test_verdicts(each: list[float], claimed: float, complete: bool, expected: str) -> None:
    assert verdict(each, claimed, complete=complete) == expected
