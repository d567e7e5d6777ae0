"""A run that was killed and resumed is, bit for bit, the run that was left alone."""

import json
import multiprocessing
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.training import killed

pytestmark = pytest.mark.slow

TIMING = {"seconds", "steps_per_second"}


PROCESSES = multiprocessing.get_context("forkserver")
# Imported once, not by each process anew.
PROCESSES.set_forkserver_preload(
    ["tests.training.killed", "torch.utils.tensorboard", "sklearn.datasets", "sklearn.metrics"]
)


def run(out: Path, moment: str, pool: str = "device") -> int | None:
    """The exit code of a process of its own that trains into ``out``."""
    process = PROCESSES.Process(target=killed.main, args=(out, moment, pool))
    process.start()
    process.join()
    return process.exitcode


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "run"
    assert run(out, "never") == 0
    warned = {warning["step"] for warning in json.loads((out / "warnings.json").read_text())}
    assert len(warned) >= 2, "some to lose"
    return out


def metrics(out: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name not in TIMING} for line in lines]


@pytest.mark.parametrize("moment", ["step:0", "checkpoint:2", "replaced:2", "record:5"])
def test_killed_and_resumed_equals_left_alone(moment: str, whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert run(out, moment) == -signal.SIGKILL
    assert not (out / "result.json").exists()
    assert run(out, "resume") == 0
    assert (out / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    final = "checkpoint/step-00000020.safetensors"
    assert (out / final).read_bytes() == (whole / final).read_bytes()
    assert [p.name for p in (out / "checkpoint").iterdir()] == [Path(final).name]
    assert metrics(out) == metrics(whole)
    assert (out / "warnings.json").read_bytes() == (whole / "warnings.json").read_bytes()
    assert (out / "predictions.csv").read_bytes() == (whole / "predictions.csv").read_bytes()


def test_resumed_with_another_pool_and_left_as_it_is_once_finished(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert run(out, "step:11", "device") == -signal.SIGKILL
    assert run(out, "resume", "host") == 0
    for name in ("model.safetensors", "checkpoint/step-00000020.safetensors", "predictions.csv"):
        assert (out / name).read_bytes() == (whole / name).read_bytes()
    assert metrics(out) == metrics(whole)
    before = {p: p.stat().st_mtime_ns for p in out.rglob("*") if p.is_file()}
    assert run(out, "resume") == 0
    assert before == {p: p.stat().st_mtime_ns for p in out.rglob("*") if p.is_file()}
