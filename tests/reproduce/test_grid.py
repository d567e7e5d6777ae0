"""A grid of runs from the plan to the filled table: stopped, continued, failing."""

import json
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from normatch.cli import main
from normatch.errors import RESUME, UserError
from normatch.reproduce import grid, paper
from normatch.reproduce.grid import plan
from normatch.reproduce.paper import Cell, Row, Study, Trial
from normatch.training.metrics import Record
from normatch.training.progress import Lines

SHORT = ["--steps", "4", "--device", "cpu", "--data", "digits", "--seeds", "0"]


def accuracies(out: Path) -> dict[str, float | None]:
    files = sorted((out / "results").glob("*.json"))
    return {file.stem: json.loads(file.read_text())["accuracy"]["last weights"] for file in files}


def use(monkeypatch: pytest.MonkeyPatch, *trials: Trial) -> None:
    """Let table1 consist of these trials."""
    rows = tuple(Row(trial.name, (Cell({}, trial),)) for trial in trials)
    monkeypatch.setitem(paper.STUDIES, "table1", Study("table1", "Table 1", "Some runs.", rows))


def test_a_plan_has_each_run_once_by_seed(tmp_path: Path) -> None:
    planned = plan("all", data="digits", seeds=(4, 2), steps=30, device="cpu", out=tmp_path)
    names = [run.name for run in planned.runs]
    assert len(set(names)) == len(names)
    assert [run.config.seed for run in planned.runs] == [4] * (len(names) // 2) + [2] * (len(names) // 2)
    assert {run.config.steps for run in planned.runs} == {30}
    assert {run.whole for run in planned.runs} == {600}
    assert not (tmp_path / "runs").exists()
    wrong: list[tuple[str, dict[str, Any], str]] = [
        ("all", {"only": ["no-stop", "dropuot"]}, "no run is called dropuot"),
        ("all", {"seeds": [1, -2]}, "seeds are 1 -2"),
        ("table1", {"data": "iris"}, "data is 'iris', which no recipe is for"),
        ("table6", {}, "table6 is about its own data and cannot be trained on digits"),
    ]
    for study, changes, said in wrong:
        changes.setdefault("data", "digits")
        with pytest.raises(UserError, match=said):
            plan(study, out=tmp_path, **changes)
    only = plan("all", data="digits", only=("no-stop", "1e-7"), device="cpu", out=tmp_path)
    assert {run.name.rpartition("-seed")[0] for run in only.runs} == {
        "digits-40-no-stop-600",
        "digits-40-lambda-1e-7-600",
    }


def test_the_fixed_grid_keeps_its_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "open_corpus", lambda config: None)
    runs = plan("grid", out=tmp_path).runs
    assert [(run.name.rpartition("-")[0], run.config.seed) for run in runs] == [
        (f"{trial.recipe}-{trial.name}-{trial.config(seed).steps}", seed) for trial, seed in paper.FIXED_GRID
    ]
    assert len(plan("grid", seeds=(0, 1), only=("10-250",), out=tmp_path).runs) == 10
    with pytest.raises(UserError, match="grid is about its own data"):
        plan("grid", data="digits", out=tmp_path)


def test_a_table_is_filled_and_not_trained_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["reproduce", "table3", *SHORT, "--out", str(tmp_path)]
    assert main([*command, "--dry-run"]) == 0
    assert re.search(r"digits-40-no-stop-4 +0 +4 +0.7% +4 of seed 0", capsys.readouterr().out)
    assert not list(tmp_path.iterdir())
    assert main(command) == 0
    assert "2 runs, 0 left with 0 steps" in capsys.readouterr().out
    links = re.findall(r"\]\((results/[^)]*)\)", (tmp_path / "results.md").read_text())
    assert len(links) == 2
    assert all((tmp_path / link).is_file() for link in links)
    before = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*") if file.is_file() and "runs" in file.parts}
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert before == {file: file.stat().st_mtime_ns for file in before}
    assert [(run["steps"], run["whole"], run["steps_done"], run["ended"]) for run in found["runs"]] == [
        (4, 600, 4, True)
    ] * 2
    first, second = found["tables"]["table3"]["cells"]
    share = accuracies(tmp_path)["digits-40-no-stop-4-seed0"]
    assert share is not None
    assert second["ours"][0]["accuracy"] == [100 * share]
    (gain,) = found["tables"]["table3"]["gains"]
    assert gain["each"] == [second["ours"][0]["accuracy"][0] - first["ours"][0]["accuracy"][0]]


def test_a_stopped_grid_continues_to_the_same_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["reproduce", "table3", *SHORT, "--steps", "8", "--minutes", "60"]
    assert main([*command, "--out", str(tmp_path / "whole")]) == 0
    for signum, code in ((signal.SIGINT, RESUME), (signal.SIGALRM, 0)):  # SIGALRM is what the end of the minutes sends

        class Stopped(Lines):
            def __call__(self, step: int, total: int, record: Record, signum: int = signum) -> None:
                if step == 5:
                    signal.raise_signal(signum)

        stopped = tmp_path / str(code)
        with monkeypatch.context() as patch:
            patch.setattr(grid, "Lines", lambda name, kind=Stopped: (kind if "no-stop" in name else Lines)(name))
            assert main([*command, "--out", str(stopped)]) == code
        assert list(accuracies(stopped)) == ["digits-40-ncue-num-8-seed0"]
        (left,) = plan("table3", steps=8, seeds=(0,), data="digits", device="cpu", out=stopped).left
        assert left.steps_done() == 5  # A run that is stopped saves a checkpoint.
        capsys.readouterr()
        assert main([*command, "--out", str(stopped), "--dry-run"]) == 0
        *_, last = capsys.readouterr().out.splitlines()
        assert last.startswith(
            "2 runs, 1 left with 3 steps; to continue elsewhere, copy results, runs/digits-40-no-stop"
        )
        elsewhere = tmp_path / f"{code}-elsewhere"
        for folder in last.split(" copy ")[1].split(", "):
            shutil.copytree(stopped / folder, elsewhere / folder)
        assert main([*command, "--out", str(elsewhere), "--data-root", str(tmp_path)]) == 0
        assert "2 runs, 0 left with 0 steps\n" in capsys.readouterr().out
        assert accuracies(elsewhere) == accuracies(tmp_path / "whole")


def test_a_run_that_diverges_is_a_result_and_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch, Trial("broken", settings={"flow_lr": 1e30, "flow_ramp": 0}), Trial("normatch"))
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", "table1", *SHORT, "--out", str(tmp_path)])
    assert stop.value.code == 1
    assert "1 of 2 runs failed: digits-40-broken-4-seed0" in capsys.readouterr().err
    found = accuracies(tmp_path)
    assert found["digits-40-broken-4-seed0"] is None
    assert found["digits-40-normatch-4-seed0"] is not None
    assert "[diverged](results/digits-40-broken-4-seed0.json)" in (tmp_path / "results.md").read_text()
    assert plan("table1", steps=4, seeds=(0,), data="digits", out=tmp_path).left == []


def test_a_missing_result_is_written_again_and_a_damaged_one_refused(tmp_path: Path) -> None:
    one: dict[str, Any] = {"steps": 2, "seeds": (0,), "only": ["40-ncue-num"], "data": "digits", "out": tmp_path}
    planned = plan("figure3", **one)
    assert planned.train(print) == []
    (file,) = (tmp_path / "results").glob("*.json")
    text = file.read_text()
    file.unlink()
    assert planned.train(print) == []
    assert file.read_text() == text
    assert (tmp_path / "pictures/figure3.svg").is_file()
    file.write_text(text.replace('"ema": 0.99', '"ema": 0.5'))
    with pytest.raises(UserError, match="is of other settings than a run would have now"):
        plan("figure3", **one)
    file.write_text(text[:40])
    other = plan("table4", steps=2, seeds=(1,), data="digits", device="cpu", out=tmp_path)
    with pytest.raises(UserError, match=f"{file.name} is no result of a run"):
        other.train(print)
    assert not (tmp_path / "runs" / other.runs[0].name).exists()


def test_data_that_is_missing_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch, Trial("normatch", "cifar10-40"), Trial("normatch", "digits-40"))
    where = ["--data-root", str(tmp_path), "--out", str(tmp_path / "grid")]
    assert main(["reproduce", "table1", "--steps", "2", "--device", "cpu", "--seeds", "0", *where]) == 0
    assert "cifar10-40 is left out: " in capsys.readouterr().out
    assert list(accuracies(tmp_path / "grid")) == ["digits-40-normatch-2-seed0"]
    use(monkeypatch, Trial("normatch", "cifar10-40"))
    with pytest.raises(UserError, match="to try it without, add --data digits"):
        plan("table1", data_root=tmp_path)
