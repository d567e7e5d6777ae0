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


def test_killed_at_every_kind_of_moment_and_resumed_equals_left_alone(whole: Path, tmp_path: Path) -> None:
    """In the end with another pool; once finished, it is left as it is."""
    out = tmp_path / "run"
    for moment, saved in (("step:0", []), ("checkpoint:1", [3]), ("replaced:1", [6, 9]), ("record:2", [12])):
        assert run(out, moment) == -signal.SIGKILL, moment
        assert not (out / "result.json").exists()
        assert sorted(int(path.stem[-8:]) for path in (out / "checkpoint").glob("step-*.safetensors")) == saved
    assert run(out, "never", "host") == 0
    final = "checkpoint/step-00000020.safetensors"
    assert [path.name for path in (out / "checkpoint").iterdir()] == [Path(final).name]
    for name in ("model.safetensors", final, "warnings.json", "predictions.csv"):
        assert (out / name).read_bytes() == (whole / name).read_bytes(), name
    assert metrics(out) == metrics(whole)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    assert run(out, "never") == 0
    assert before == {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
