"""Several processes train as one does, and end together."""

import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import safetensors.torch
import torch
from filelock import FileLock

from normatch.training import Run, checkpoint
from normatch.training.torchrun import LAUNCH, mark, restarted
from tests.training import processes
from tests.training.processes import BY_THREE, RUNS

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    ["tests.training.processes", "torch.utils.tensorboard", "sklearn.datasets", "sklearn.metrics"]
)


class Started(NamedTuple):
    """Processes that train together, or one by itself."""

    processes: Sequence[BaseProcess]
    out: Path

    def join(self) -> list[Any]:
        """What each returns, or its exit code if it returns nothing."""
        for process in self.processes:
            process.join()
        files = [self.out / f"{rank}.pt" for rank in range(len(self.processes))]
        ends = zip(files, self.processes, strict=True)
        return [torch.load(file) if file.is_file() else process.exitcode for file, process in ends]

    @property
    def said(self) -> str:
        return "".join((self.out / f"{rank}.log").read_text() for rank in range(len(self.processes)))


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Started]:
    def started(size: int, work: Callable[..., Any], *args: Any) -> Started:
        """Start ``size`` processes that do ``work`` together; 0 is one process without torchrun."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        out = tmp_path_factory.mktemp("processes")
        group = [
            PROCESSES.Process(target=processes.start, args=(rank, size, port, out, work, args))
            for rank in range(max(1, size))
        ]
        for process in group:
            process.start()
        return Started(group, out)

    return started


@pytest.fixture(scope="session")
def found(start: Callable[..., Started], tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[dict[str, Any]]]:
    """What one process, two and three compute; they run at the same time, and once for all of pytest's workers."""
    base = tmp_path_factory.getbasetemp()
    place = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "found.pt"
    with FileLock(f"{place}.lock"):
        if not place.exists():
            started = {
                1: start(0, processes.together),
                2: start(2, processes.together),
                3: start(3, processes.together),
            }
            torch.save({size: those.join() for size, those in started.items()}, place)
    computed: dict[int, list[dict[str, Any]]] = torch.load(place)
    return computed


SEVERAL = pytest.mark.parametrize("size", [2, 3])


@pytest.mark.parametrize(("size", "name"), [*((2, name) for name in RUNS), *((3, name) for name in BY_THREE)])
def test_the_losses_are_those_of_one_process(size: int, name: str, found: dict[int, list[dict[str, Any]]]) -> None:
    one = found[1][0]["runs"][name]
    for several in found[size]:
        run = several["runs"][name]
        assert run["losses"] == pytest.approx(one["losses"], rel=0, abs=1e-9)
        assert run["record"] == pytest.approx(one["record"])
        assert run["state"].keys() == one["state"].keys()
        for part, value in one["state"].items():
            assert torch.allclose(run["state"][part].double(), value.double(), rtol=0, atol=1e-8), part


@SEVERAL
def test_batch_norm_is_that_of_the_whole_batch(size: int, found: dict[int, list[dict[str, Any]]]) -> None:
    for several in found[size]:
        for kind, errors in several["norms"].items():
            assert max(errors) < 1e-12, kind


@SEVERAL
def test_a_shared_pool_gives_what_a_whole_one_does(size: int, found: dict[int, list[dict[str, Any]]]) -> None:
    for several in found[size]:
        assert [what for what, same in several["pools"].items() if not same] == []


@SEVERAL
def test_each_image_of_a_mapped_file_is_read_by_one_process(size: int, found: dict[int, list[dict[str, Any]]]) -> None:
    (one,), several = ([each["mapped"] for each in found[n]] for n in (1, size))
    assert sum(len(each["read"]) for each in several) == 60
    assert set.union(*(each["read"] for each in several)) == one["read"] == set(range(60))
    assert [each["loss"] for each in several] == pytest.approx([one["loss"]] * size, rel=0, abs=1e-9)


def weights(run: Path) -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(run / "model.safetensors")


def test_a_run_is_stopped_and_resumed_by_any_number_of_processes(start: Callable[..., Started], tmp_path: Path) -> None:
    """One of them gets SIGTERM, and all stop after the same step."""
    out, whole = tmp_path / "run", tmp_path / "whole"
    by_itself = start(0, processes.stopped, whole, 99, 0, False)
    for size, step, rank in ((3, 4, 2), (2, 7, 0)):
        ends = start(size, processes.stopped, out, step, rank, step > 4).join()
        assert {code for _, code in ends} == {75}
        assert {message for message, _ in ends if message} == {f"continue with normatch train --out {out} --resume"}
        assert [path.name for path in (out / "checkpoint").iterdir()] == [f"step-{step + 1:08d}.safetensors"]
    assert start(0, processes.stopped, out, 99, 0, True).join() == by_itself.join() == [("", 0)]
    assert Run(out).config == Run(whole).config
    for name, value in weights(whole).items():
        assert torch.allclose(weights(out)[name], value, rtol=0, atol=1e-9), name
    ours, theirs = (list(Run(path).metrics()) for path in (out, whole))
    assert [record["step"] for record in ours] == [record["step"] for record in theirs]
    assert [record.get("loss") for record in ours] == pytest.approx([record.get("loss") for record in theirs])


def test_if_a_process_is_killed_the_others_end_with_one_line(start: Callable[..., Started], tmp_path: Path) -> None:
    out, begin = tmp_path / "run", time.monotonic()
    first, second, third = start(3, processes.killed, out, 7, 1).join()
    assert time.monotonic() - begin < 900, "long before gloo's half hour"
    assert second == -signal.SIGKILL
    assert {first[1], third[1]} == {75}
    line = f"process 1 of 3 has ended; continue with normatch train --out {out} --resume"
    assert line in (said := {first[0], third[0]})
    assert said <= {"", line}  # by both if the first, which here keeps the store, ends first
    assert checkpoint.newest_step(out / "checkpoint") == 6


def test_a_process_that_hears_no_more_of_another_ends(start: Callable[..., Started]) -> None:
    """Also where it waits for a GPU that waits for the other's."""
    started = start(2, processes.bereft, 2.0)
    assert started.join() == [75, 0]
    assert started.said == "normatch: stopped; process 1 of 2 has ended; remedy\n"


def test_a_batch_that_cannot_be_shared_evenly_is_refused(start: Callable[..., Started], tmp_path: Path) -> None:
    out = tmp_path / "run"
    started = start(3, processes.command, "train", "digits-40", "--batch", "8", "--steps", "4", "--out", str(out))
    assert {code for _, code in started.join()} == {2}
    assert started.said == "normatch: batch is 8, which 3 processes cannot share evenly: give --batch 6 or 9\n"
    assert not out.exists()


def test_torchrun_restarts_a_run_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process is killed in the first attempt, and the second resumes: only what the same torchrun has begun."""
    out = tmp_path / "run"
    words = "-m torch.distributed.run --nproc-per-node 2 --max-restarts 1 -m tests.training.processes"
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *words.split(), str(out)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    line = f"normatch: stopped; process 1 of 2 has ended; continue with normatch train --out {out} --resume"
    assert done.stderr.splitlines().count(line) == 1
    assert f"next: normatch report {out}" in done.stdout
    result = Run(out).result
    assert (result["steps"], result["processes"]) == (12, 2)
    assert [record["step"] for record in Run(out).metrics()] == [2, 4, 6, 8, 10, 12]
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", (out / LAUNCH).read_text().split()[0])
    assert not restarted(out), "by another torchrun"
    mark(out)
    assert restarted(out)
