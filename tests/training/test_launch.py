"""Many runs at once: on this machine and through submitit, killed and continued."""

import importlib.util
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from normatch.cli import main
from normatch.config import Config
from normatch.training import launch
from normatch.training.launch import Launched, submit, train_here, unfinished
from normatch.training.run import Run
from normatch.training.train import train

needs_submitit = pytest.mark.skipif(importlib.util.find_spec("submitit") is None, reason="needs submitit")
SWEEP = [
    *("sweep", "digits-40", "--batch", "8", "--ratio", "2", "--log-every", "2", "--checkpoint-every", "2"),
    *("--grid", "settings.num-weight=1e-7,1e-6", "ema=0.9"),
]


def runs_of(config: Config, folder: Path, count: int) -> list[Launched]:
    config = config.replace(checkpoint_every=2, device="cpu")
    return [Launched(config.replace(seed=seed, name=f"seed{seed}"), folder / f"seed{seed}") for seed in range(count)]


def same_weights(run: Launched, other: Launched) -> bool:
    weights = [(r.folder / "model.safetensors").read_bytes() for r in (run, other)]
    return weights[0] == weights[1]


def test_each_combination_is_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "runs"
    sweep = [*SWEEP, "--seeds", "3", "--out", str(out)]
    assert main([*sweep, "--steps", "4", "--processes", "2"]) == 0
    names = {f"num-weight-{value}-ema-0.9-seed3" for value in ("1e-7", "1e-6")}
    assert {run.name for run in out.iterdir()} == names | {".logs"}
    for name in names:
        config = Run.open(out / name).config
        assert f"num-weight-{config.settings.num_weight:.0e}".replace("e-0", "e-") in name  # type: ignore[attr-defined]
        assert (config.ema, config.seed) == (0.9, 3)
        assert Run(out / name).result["steps"] == 4
    assert "next: normatch compare " in capsys.readouterr().out
    # Again, nothing is left; another setting is another sweep.
    assert main([*sweep, "--steps", "4", "--dry-run"]) == 0
    assert "2 runs, 0 left" in capsys.readouterr().out
    for change, says in (
        (["--steps", "5"], "was started with steps 4, not 5"),
        (["--steps", "4", "--backbone", "small"], "was started with backbone small-wide, not small"),
    ):
        assert main([*sweep, *change]) == 2
        assert says in capsys.readouterr().err


def test_a_grid_turns_switches_on_and_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, bool] = {}

    def launch(runs: list[Launched], *_: object) -> list[str]:
        found.update({run.folder.name: run.config.settings.alignment for run in runs})  # type: ignore[attr-defined]
        return []

    monkeypatch.setattr("normatch.cli._launch", launch)
    grid = ["--grid", "settings.alignment=true,False"]
    assert main(["sweep", "digits-40", *grid, "--out", str(tmp_path / "runs")]) == 0
    assert found == {"alignment-true-seed0": True, "alignment-False-seed0": False}


def test_processes_share_the_gpus_that_this_one_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert launch._gpu_names() == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,GPU-8a")
    assert launch._gpu_names() == ["2", "GPU-8a"]


def test_a_run_that_fails_is_named(tiny_config: Config, tmp_path: Path) -> None:
    bad, good = runs_of(tiny_config, tmp_path, 2)
    bad = Launched(bad.config.replace(labels=100_000), bad.folder)
    said: list[str] = []
    assert train_here([bad, good], tmp_path / "logs", 1, said.append) == ["seed0"]
    assert good.finished, "the next is trained all the same"
    assert "but needs 10000" in (tmp_path / "logs" / "seed0.log").read_text()
    assert any("seed0 ended with code 2: see" in line for line in said)


def wait_for_a_checkpoint(folder: Path) -> None:
    until = time.monotonic() + 600
    while not list(folder.glob("*/checkpoint/*.safetensors")):
        assert time.monotonic() < until
        time.sleep(0.05)


def test_stopped_by_sigterm_all_are_saved_and_continue(tmp_path: Path) -> None:
    out = tmp_path / "runs"
    command = [sys.executable, "-m", "normatch", *SWEEP, "--steps", "5000", "--out", str(out), "--processes", "2"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        wait_for_a_checkpoint(out)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=600)
    assert process.returncode == 75
    assert err.endswith("normatch: stopped; run it again to continue\n")
    begun = [run for run in out.iterdir() if (run / "config.json").is_file()]
    assert begun
    assert not any(Run(run).finished for run in begun)
    # Nobody trains them any more.
    for run in begun:
        with Run(run).alone():
            pass


@needs_submitit
def test_killed_jobs_of_a_cluster_continue(tiny_config: Config, tmp_path: Path) -> None:
    runs, alone = (runs_of(tiny_config, tmp_path / name, 2) for name in ("jobs", "alone"))
    (job,) = submit(runs[:1], tmp_path / "logs", None, cluster="local")
    wait_for_a_checkpoint(tmp_path / "jobs")
    job.cancel(check=False)
    while not job.done():
        time.sleep(0.05)
    for job in submit(unfinished(runs), tmp_path / "logs", None, cluster="local"):
        job.result()
    assert unfinished(runs) == []
    train(alone[0].config, alone[0].folder)
    assert same_weights(runs[0], alone[0])


@needs_submitit
def test_what_would_be_submitted_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "runs"
    sweep = [*SWEEP, "--seeds", "0", "1", "--out", str(out), "--slurm", "day"]
    assert main([*sweep, "--dry-run"]) == 0
    script = capsys.readouterr().out
    for line in ("#SBATCH --partition=day", "#SBATCH --array=0-3", "#SBATCH --gpus-per-node=1", "srun "):
        assert line in script
    assert not out.exists()
    assert main(sweep) == 2
    assert "cannot submit to Slurm" in capsys.readouterr().err
