"""A run as one file, against the files of the run itself."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

from normatch.config import Config
from normatch.errors import UserError
from normatch.report.thinning import MOST_POINTS
from normatch.reproduce.results import Result, _shortened, read_results, write_result
from normatch.training import train
from normatch.training.run import Run

MEAN = "mean of the last 20 evaluations"
BEST = "best evaluation (chosen by the test set)"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, tiny_config: Config) -> Run:
    """More evaluations than those that count for the mean."""
    folder = tmp_path_factory.mktemp("trained")
    config = tiny_config.replace(
        name="tiny", steps=22, evaluate_every=1, log_every=3, checkpoint_every=22, data_root=folder / "data-lies-here"
    )
    return train(config, folder / "tiny")


@pytest.fixture(scope="module")
def written(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    write_result(run, folder / "tiny.json", whole=88)
    return folder


@pytest.fixture(scope="module")
def fields(written: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((written / "tiny.json").read_text())
    return found


@pytest.fixture(scope="module")
def result(written: Path) -> Result:
    (found,) = read_results(written)
    return found


def records(run: Run) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]


def altered(run: Run, folder: Path, lines: list[dict[str, Any]]) -> Run:
    """A copy of the run whose records are others."""
    shutil.copytree(run.path, folder, ignore=shutil.ignore_patterns("events", "checkpoint"))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return Run.open(folder)


def test_the_accuracy_is_that_of_the_last_weights(run: Run, result: Result) -> None:
    assert result.accuracy == json.loads((run.path / "result.json").read_text())["accuracy"]
    assert result.failed is None


def test_other_accuracies_are_named_for_what_they_are(run: Run, fields: dict[str, Any]) -> None:
    seen = [record["test/accuracy"] for record in records(run) if "test/accuracy" in record]
    assert len(seen) == 22
    assert fields["accuracy"] == {
        "last weights": run.accuracy,
        MEAN: pytest.approx(np.mean(seen[2:])),
        "evaluations in that mean": 20,
        BEST: max(seen),
    }


def test_the_last_evaluations_are_not_the_thinned_ones(run: Run, tmp_path: Path) -> None:
    seen = np.random.default_rng(0).uniform(size=2 * MOST_POINTS + 7)
    lines = [{"step": step, "test/accuracy": share} for step, share in enumerate(seen.tolist(), 1)]
    write_result(altered(run, tmp_path / "copy", lines), tmp_path / "copy.json", 1000)
    found = json.loads((tmp_path / "copy.json").read_text())
    assert found["accuracy"][MEAN] == pytest.approx(seen[-20:].mean())
    assert found["accuracy"][BEST] == seen.max()
    assert len(found["curves"]["test/accuracy"]) <= MOST_POINTS


def test_who_was_labelled_is_told(run: Run, fields: dict[str, Any]) -> None:
    split = json.loads((run.path / "split.json").read_text())
    assert fields["labelled"] == split["labelled"]
    assert len(set(fields["labelled"])) == fields["labels"] == 40
    assert fields["unlabelled"] == len(run.split.unlabelled)


def test_the_circumstances_are_the_runs(run: Run, fields: dict[str, Any], result: Result) -> None:
    ended = json.loads((run.path / "result.json").read_text())
    for name in ("evaluated_on", "n", "method", "seed", "steps", "seconds", "hardware", "versions", "date"):
        assert fields[name] == ended[name]
    assert fields["schedule"] == {"steps": 22, "whole": 88, "share": 0.25}
    assert result.torch == ended["versions"]["torch"]
    assert (result.hardware, result.date, result.seconds) == (ended["hardware"], ended["date"], ended["seconds"])
    assert (result.seed, result.path.name) == (0, "tiny.json")


def test_where_the_data_lies_is_nobodys_business(run: Run, written: Path, result: Result) -> None:
    assert run.config.data_root is not None
    assert "data-lies-here" in (run.path / "config.json").read_text()
    assert "data-lies-here" not in (written / "tiny.json").read_text()
    assert result.config == run.config.replace(data_root=None)


def test_curves_are_the_records_to_the_last_step(run: Run, result: Result) -> None:
    assert {"loss", "test/accuracy", "pseudo/trusted", "pseudo/confident"} <= result.curves.keys()
    for name, curve in result.curves.items():
        recorded = [(r["step"], r[name]) for r in records(run) if r.get(name) is not None]
        assert [step for step, _ in curve] == [step for step, _ in recorded]
        assert [value for _, value in curve] == pytest.approx([value for _, value in recorded], rel=1e-4)
    assert all(result.curves[name][-1][0] == 22 for name in ("loss", "test/accuracy", "pseudo/trusted"))
    assert result.confident == result.curves["pseudo/confident"][-1][1]


def test_what_is_no_finite_number_is_on_no_curve(run: Run, tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [
        {"step": 1, "loss": 2.0, "pseudo/confident": 0.25, "pseudo/classes": [0.5, 0.5]},
        {"step": 2, "loss": float("nan"), "pseudo/confident": 0.75},
        {"step": 3, "loss": float("inf"), "pseudo/confident": None},
    ]
    write_result(altered(run, tmp_path / "copy", lines), tmp_path / "copy.json", 22)
    (found,) = read_results(tmp_path)
    assert found.curves == {"loss": [(1, 2.0)], "pseudo/confident": [(1, 0.25), (2, 0.75)]}
    assert found.confident == 0.75


def test_weights_are_those_of_the_auxiliary_classifiers(run: Run, result: Result) -> None:
    tensors = {n: t for n, t in load_file(run.path / "model.safetensors").items() if n.startswith("auxiliary.")}
    assert result.weights == sum(tensor.size for tensor in tensors.values())
    assert result.products == sum(tensor.size for tensor in tensors.values() if tensor.ndim == 2)


def test_a_method_without_a_second_classifier_has_no_such_weights(tmp_path: Path, tiny_config: Config) -> None:
    ended = train(tiny_config.replace(method="supervised", steps=1), tmp_path / "supervised")
    write_result(ended, tmp_path / "supervised.json", 1)
    (found,) = read_results(tmp_path)
    assert (found.weights, found.products, found.confident) == (0, 0, None)


def test_a_run_that_broke_off_has_failed_and_reached_nothing(run: Run, tmp_path: Path) -> None:
    cut = altered(run, tmp_path / "cut", [*records(run)[:9], {"step": 10, "seconds": 7.5, "loss": None}])
    for name in ("result.json", "model.json", "model.safetensors", "predictions.csv"):
        (cut.path / name).unlink()
    warnings = [
        {"name": "few-labels", "step": 0, "message": "few labels", "remedy": "label more"},
        {"name": "not-finite", "step": 10, "message": "loss is not finite", "remedy": "less speed"},
    ]
    (cut.path / "warnings.json").write_text(json.dumps(warnings))
    write_result(cut, tmp_path / "cut.json", 22)
    (found,) = read_results(tmp_path)
    assert found.failed == "step 10: loss is not finite"
    assert (found.accuracy, found.weights, found.products) == (None, None, None)
    assert found.seconds == 7.5
    fields = json.loads((tmp_path / "cut.json").read_text())
    seen = [record["test/accuracy"] for record in records(run)[:9]]
    assert fields["steps"] == 10
    assert fields["accuracy"] == {
        "last weights": None,
        MEAN: pytest.approx(np.mean(seen)),
        "evaluations in that mean": 9,
        BEST: max(seen),
    }
    assert fields["warnings"] == ["few-labels at step 0", "not-finite at step 10"]


def test_results_are_read_by_name(written: Path, tmp_path: Path) -> None:
    for name in ("b", "a", "c"):
        shutil.copy(written / "tiny.json", tmp_path / f"{name}.json")
    (tmp_path / "notes.md").touch()
    assert [found.path.name for found in read_results(tmp_path)] == ["a.json", "b.json", "c.json"]
    assert read_results(tmp_path / "nowhere") == []


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "null", "{}", '{"name": "x"}', '"words"', "\ufeff{}"])
def test_a_foreign_file_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "foreign.json").write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as error:
        read_results(tmp_path)
    assert str(tmp_path / "foreign.json") in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "damage",
    [
        {"accuracy": 0.5},
        {"accuracy": {"last weights": "0.9"}},
        {"accuracy": {"last weights": 94.1}},
        {"accuracy": {"last weights": float("nan")}},
        {"seconds": None},
        {"date": None},
        {"hardware": 7},
        {"curves": None},
        {"curves": {"loss": [[1, "much"]]}},
        {"curves": {"pseudo/confident": [[1, 82.31]]}},
        {"curves": {"loss": [[1, 2.0, 3.0]]}},
        {"curves": {"pseudo/confident": [[]]}},
        {"config": []},
        {"config": {"method": "nomatch"}},
        {"config": {"speed": 1}},
        {"versions": {}},
        {"auxiliary": None},
    ],
)
def test_a_damaged_file_is_named(damage: dict[str, Any], fields: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "damaged.json").write_text(json.dumps(fields | damage))
    with pytest.raises(UserError, match=r"damaged\.json is no result"):
        read_results(tmp_path)


def test_a_missing_field_or_half_a_file_is_named(written: Path, fields: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "damaged.json"
    for name in ("config", "failed", "accuracy", "curves", "auxiliary", "seconds", "date"):
        path.write_text(json.dumps({n: value for n, value in fields.items() if n != name}))
        with pytest.raises(UserError, match=name):
            read_results(tmp_path)
    whole = (written / "tiny.json").read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"damaged\.json"):
        read_results(tmp_path)


@given(st.integers(1, 5 * MOST_POINTS))
def test_a_thinned_curve_is_even_and_has_its_end(count: int) -> None:
    points = [(3 * i, 1 / (i + 1)) for i in range(count)]
    kept = _shortened(points)
    assert len(kept) <= MOST_POINTS
    assert len(kept) >= min(count, MOST_POINTS / 2)
    assert kept[-1][0] == points[-1][0]
    assert len(set(np.diff([step for step, _ in kept]))) <= 1
    assert dict(kept).items() <= {s: float(f"{v:.5g}") for s, v in points}.items()
