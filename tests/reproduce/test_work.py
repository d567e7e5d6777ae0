"""A grid of runs from the plan to the filled table: stopped, continued, failing, side by side."""

import dataclasses
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from normatch.cli import main
from normatch.errors import UserError
from normatch.reproduce import estimate, paper, work
from normatch.reproduce.paper import Cell, Row, Study, Trial
from normatch.reproduce.plan import make_plan
from normatch.reproduce.work import carry_out
from normatch.training.pace import Pace

QUICK = ["--budget", "4steps", "--device", "cpu", "--data", "digits", "--seeds", "0"]


def accuracies(out: Path) -> dict[str, float | None]:
    files = sorted((out / "results").glob("*.json"))
    return {file.stem: json.loads(file.read_text())["accuracy"]["last weights"] for file in files}


def told_nothing(said: str) -> None:
    return


@pytest.fixture(autouse=True)
def _known_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """How fast this machine is, is none of these tests' business."""
    monkeypatch.setattr(estimate, "pace", lambda job: Pace(start=1.0, step=0.01, evaluation=0.1))


@pytest.mark.slow
def test_table_1_is_filled_from_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "grid"
    command = ["reproduce", "table1", "--budget", "quick", "--device", "cpu", "--data", "digits", "--out", str(out)]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "12 runs, 0 finished; about" in said
    assert len(accuracies(out)) == 12
    page = (out / "results.md").read_text()
    for row in paper.STUDIES["table1"].rows:
        (line,) = [line for line in page.splitlines() if line.startswith(f"| {row.name} |") and "json" in line]
        assert "| 3 | 60 | 10% |" in line
        links = [part.split(")")[0] for part in line.split("](")[1:]]
        assert [(out / link).is_file() for link in links] == [True, True, True]
    before = {file: file.stat().st_mtime_ns for file in out.rglob("*") if file.is_file() and "runs" in file.parts}
    assert main(command) == 0
    assert "12 runs, 12 finished; about 0:00:00 to go" in capsys.readouterr().out
    assert before == {file: file.stat().st_mtime_ns for file in before}


def test_a_damaged_result_is_said_before_anything_is_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = ["reproduce", "table3", "--data", "digits", "--budget", "2steps", "--device", "cpu", "--out", str(tmp_path)]
    assert main([*grid, "--seeds", "0"]) == 0
    damaged = next((tmp_path / "results").glob("*.json"))
    damaged.write_text('{"a')
    runs = sorted(path.parent.name for path in tmp_path.rglob("config.json"))
    capsys.readouterr()
    assert main([*grid, "--seeds", "1"]) == 2
    assert damaged.name in capsys.readouterr().err
    assert sorted(path.parent.name for path in tmp_path.rglob("config.json")) == runs


def test_a_dry_run_trains_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "table3", *QUICK, "--out", str(tmp_path / "grid"), "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"digits-40-no-stop-4 +0 +4 +0.7% +0 of 1", said)
    assert "2 runs, 0 finished; about 0:00:03 to go" in said
    assert {file.name for file in (tmp_path / "grid").rglob("*")} == {"pace.json", ".pace-0"}


def test_a_killed_grid_goes_on_to_the_same_results(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    arguments = ["reproduce", "table4", *QUICK, "--budget", "30steps"]
    assert main([*arguments, "--out", str(whole)]) == 0
    process = subprocess.Popen(
        [sys.executable, "-m", "normatch", *arguments, "--out", str(killed)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_for(lambda: len(list((killed / "runs").glob("digits*/config.json"))) >= 2)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert 0 < len(accuracies(killed)) < 3
    assert main([*arguments, "--out", str(killed)]) == 0
    assert accuracies(killed) == accuracies(whole)


def test_runs_side_by_side_are_the_same(tmp_path: Path) -> None:
    alone, beside = tmp_path / "alone", tmp_path / "beside"
    arguments = ["reproduce", "table3", *QUICK]
    assert main([*arguments, "--out", str(alone)]) == 0
    assert main([*arguments, "--out", str(beside), "--at-once", "2"]) == 0
    assert accuracies(beside) == accuracies(alone)


def test_runs_that_take_turns_are_the_same_and_train_one_at_a_time(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    alone, turns = tmp_path / "alone", tmp_path / "turns"
    plans = [
        make_plan("table3", budget="4steps", seeds=(0, 1), data="digits", device="cpu", out=out)
        for out in (alone, turns)
    ]
    assert carry_out(plans[0], told_nothing) == []
    capfd.readouterr()
    assert carry_out(dataclasses.replace(plans[1], ahead=1), told_nothing) == []
    assert accuracies(turns) == accuracies(alone)
    # Between two lines that say how long a run waited the one before has come to its last step.
    said = [line for line in capfd.readouterr().err.splitlines() if re.search(r"turn … \d|4/4", line)]
    assert ["turn" in line for line in said] == [True, False] * 4
    assert [line.split()[0] for line in said[::2]] == [line.split()[0] for line in said[1::2]]


def test_runs_of_a_killed_parent_end_too(tmp_path: Path) -> None:
    out = tmp_path / "grid"
    arguments = ["table3", "--budget", "500steps", "--device", "cpu", "--data", "digits", "--seeds", "0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "normatch", "reproduce", *arguments, "--out", str(out), "--at-once", "2"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_for(lambda: len(list((out / "runs").glob("digits*/metrics.jsonl"))) == 2)
    children = [pid for pid in processes() if parent_of(pid) == process.pid]
    assert len(children) >= 2
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_for(lambda: not set(children) & set(processes()), seconds=20)


def test_a_run_that_diverges_is_a_result_and_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = Trial("broken", settings={"flow_lr": 1e30, "flow_ramp": 0})
    rows = (Row("breaks", (Cell({}, broken),)), Row("holds", (Cell({}, Trial("normatch")),)))
    monkeypatch.setitem(paper.STUDIES, "table1", Study("table1", "Table 1", "Two runs.", rows))
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", "table1", *QUICK, "--out", str(tmp_path / "grid")])
    assert stop.value.code == 1
    assert "1 of 2 runs failed: digits-40-broken-4-seed0" in capsys.readouterr().err
    found = json.loads((tmp_path / "grid/results/digits-40-broken-4-seed0.json").read_text())
    assert found["failed"].startswith("step ")
    assert accuracies(tmp_path / "grid")["digits-40-broken-4-seed0"] is None
    page = (tmp_path / "grid/results.md").read_text()
    assert "| breaks | – | 0, 1 failed | 4 |" in page
    assert "[failed](results/digits-40-broken-4-seed0.json)" in page
    assert "| holds |" in page


def test_data_that_is_not_there_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tuple(Row(recipe, (Cell({}, Trial("normatch", recipe)),)) for recipe in ("cifar10-40", "digits-40"))
    monkeypatch.setitem(paper.STUDIES, "table1", Study("table1", "Table 1", "Two data sets.", rows))
    where = ["--device", "cpu", "--data-root", str(tmp_path), "--out", str(tmp_path / "grid"), "--seeds", "0"]
    assert main(["reproduce", "table1", "--budget", "2steps", *where]) == 0
    said = capsys.readouterr().out
    assert "cifar10-40 is left out: " in said
    assert list(accuracies(tmp_path / "grid")) == ["digits-40-normatch-2-seed0"]
    assert "| cifar10-40 | – | – | – | 0 | – | – |" in (tmp_path / "grid/results.md").read_text()


def test_two_grids_do_not_share_a_folder(tmp_path: Path) -> None:
    plan = make_plan("table3", budget="2steps", seeds=(0,), data="digits", device="cpu", out=tmp_path)
    with (tmp_path / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="is in use by another normatch reproduce"):
            carry_out(plan, told_nothing)
    assert carry_out(plan, told_nothing) == []


def test_minutes_become_steps_once_and_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def planned() -> list[int]:
        plan = make_plan("table1", budget="0.1", seeds=(0,), data="digits", device="cpu", out=tmp_path)
        return [run.config.steps for run in plan.runs]

    # 6 s less a twentieth and the start, at 0.01 s a step and 0.1 s for each of 20 evaluations.
    first = planned()
    assert first == [int((6 * 0.95 - 1 - 20 * 0.1) / 0.01)] * 4
    monkeypatch.setattr(estimate, "pace", lambda job: Pace(start=1.0, step=1.0, evaluation=1.0))
    assert planned() == first


def test_too_few_minutes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"budget is 0.01 minutes: a run of digits-40 takes 1 s to start"):
        make_plan("table1", budget="0.01", data="digits", device="cpu", out=tmp_path)


def test_a_finished_run_without_a_result_gets_one(tmp_path: Path) -> None:
    plan = make_plan("figure3", budget="2steps", seeds=(0,), data="digits", device="cpu", out=tmp_path)
    carry_out(plan, told_nothing)
    (file,) = (tmp_path / "results").glob("*.json")
    before = file.read_bytes()
    file.unlink()
    carry_out(plan, told_nothing)
    assert file.read_bytes() == before
    assert (tmp_path / "pictures/figure3-digits-40.svg").is_file()


def test_the_page_has_all_that_was_trained_into_the_folder(tmp_path: Path) -> None:
    def titles() -> list[str]:
        return [line for line in (tmp_path / "results.md").read_text().splitlines() if line.startswith("###")]

    assert main(["reproduce", "table3", *QUICK, "--out", str(tmp_path)]) == 0
    first = "### Table 3: stopping the flow's gradient before the backbone, with digits-40"
    assert first in titles()
    assert main(["reproduce", "figure5", *QUICK, "--only", "1e-7", "--out", str(tmp_path)]) == 0
    assert {first, "### Figure 5: sensitivity to λ, with digits-40"} <= set(titles())


def test_a_finished_run_of_other_settings_is_no_answer(tmp_path: Path) -> None:
    command = ["reproduce", "table3", *QUICK, "--only", "no-stop", "--out", str(tmp_path)]
    assert main(command) == 0
    (file,) = (tmp_path / "runs").glob("*/config.json")
    file.write_text(file.read_text().replace('"ema": 0.99', '"ema": 0.5'))
    with pytest.raises(
        UserError, match=r"no-stop-4-seed0 was trained with other settings than it would be now: choose"
    ):
        make_plan("table3", budget="4steps", seeds=[0], data="digits", device="cpu", out=tmp_path)


def test_a_program_reads_the_plan_and_the_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["reproduce", "table3", *QUICK, "--out", str(tmp_path / "grid"), "--json"]
    assert main([*command, "--dry-run"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert [run["name"] for run in planned["runs"]] == ["digits-40-ncue-num-4-seed0", "digits-40-no-stop-4-seed0"]
    assert [(run["steps"], run["whole"], run["finished"]) for run in planned["runs"]] == [(4, 600, False)] * 2
    assert main(command) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["failed"] == []
    assert [(run["steps_done"], run["finished"], run["seconds_left"]) for run in found["runs"]] == [(4, True, 0.0)] * 2
    first, second = found["tables"]["table3"]
    assert (first["row"], second["row"]) == ("stopped", "not stopped")
    assert (found["stand_in"], first["paper"]) == ("digits-40", {})
    (ours,) = second["ours"]
    assert ours["accuracy"] == [
        100 * share for share in [accuracies(tmp_path / "grid")["digits-40-no-stop-4-seed0"]] if share
    ]
    assert (ours["steps"], ours["whole"], ours["seeds"]) == (4, 600, [0])
    assert ours["files"] == ["digits-40-no-stop-4-seed0.json"]
    (gain,) = found["gains"]["table3"]
    each = ours["accuracy"][0] - first["ours"][0]["accuracy"][0]
    assert (gain["row"], gain["paper"], gain["each"], gain["interval"]) == ("not stopped", None, [each], None)


def test_an_interrupted_grid_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(work, "_train", interrupted)
    assert main(["reproduce", "table3", *QUICK, "--out", str(tmp_path / "grid")]) == 1
    assert capsys.readouterr().err == "normatch: stopped; run it again to continue\n"


def wait_for(happened: Callable[[], bool], seconds: float = 100) -> None:
    until = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < until
        time.sleep(0.02)


def processes() -> list[int]:
    """Processes that are neither gone nor waiting to be buried."""
    alive = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            state = Path(f"/proc/{name}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if state != "Z":
            alive.append(int(name))
    return alive


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0
