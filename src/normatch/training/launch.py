"""Many runs: one process a GPU on this machine, or the jobs of a Slurm cluster. Their folders are the only state."""

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from normatch.config import Config, to_json
from normatch.errors import RESUME, UserError
from normatch.files import write_sealed
from normatch.training.run import Run
from normatch.training.train import as_begun, must_match, train

__all__ = ["Launched", "sbatch", "submit", "train_here", "unfinished"]

HOURS = 24
"""What a Slurm job asks for. One that needs more is stopped, and its successor resumes the run."""

SIGNAL_SECONDS = 120
"""How long before the end of its time a Slurm job is told, and its successor is queued."""


@dataclass(frozen=True)
class Launched:
    """A run to be trained into ``folder``, or continued there. Called, it trains: submitit calls it in a job."""

    config: Config
    folder: Path

    @property
    def finished(self) -> bool:
        return Run(self.folder).finished

    def __call__(self) -> None:
        if not self.finished:
            train(self.config, self.folder, resume=self.folder.exists())

    def checkpoint(self) -> Any:
        """What a job that is stopped leaves for its successor: itself, since a run's checkpoint is in its folder."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)

    def command(self, configs: Path) -> list[str]:
        """The command that trains or continues it; its config is written into the folder ``configs``."""
        words = [sys.executable, "-m", "normatch", "train", "--out", str(self.folder)]
        if self.folder.exists():
            return [*words, "--resume"]
        file = configs / f"{self.folder.name}.json"
        configs.mkdir(parents=True, exist_ok=True)
        write_sealed(file, to_json(self.config))
        return [*words, "--config", str(file)]


def unfinished(runs: Sequence[Launched]) -> list[Launched]:
    """Those that are not finished; UserError if a folder is of another run than it would be now."""
    for run in runs:
        if run.folder.exists():
            begun = Run.open(run.folder)
            must_match(begun, as_begun(begun, run.config))
    return [run for run in runs if not run.finished]


def train_here(runs: Sequence[Launched], logs: Path, processes: int | None, tell: Callable[[str], None]) -> list[str]:
    """Train runs in processes of this machine, by default one for each GPU; return the names of those that failed.

    What a process prints goes into a file of ``logs``. SIGTERM and Ctrl-C let all of them save a checkpoint.
    """
    gpus = _gpu_names() or [""]
    free: queue.Queue[str] = queue.Queue()
    for i in range(processes or len(gpus)):
        free.put(gpus[i % len(gpus)])
    logs.mkdir(parents=True, exist_ok=True)
    running: dict[str, subprocess.Popen[bytes]] = {}
    stopped, starting = False, threading.Lock()

    def work(run: Launched) -> int:
        gpu, name = free.get(), run.folder.name
        try:
            environment = os.environ | ({"CUDA_VISIBLE_DEVICES": gpu} if gpu else {})
            with (logs / f"{name}.log").open("ab") as log:
                with starting:  # else one that starts while all are stopped would go on
                    if stopped:
                        return RESUME
                    running[name] = process = subprocess.Popen(
                        run.command(logs), env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
                    )
                code = process.wait()
            tell(Run(run.folder).describe() if code == 0 else f"{name} ended with code {code}: see {log.name}")
            return code
        finally:
            running.pop(name, None)
            free.put(gpu)

    with _until_stopped(), ThreadPoolExecutor(free.qsize()) as pool:
        futures = {run.folder.name: pool.submit(work, run) for run in runs}
        try:
            codes = {name: future.result() for name, future in futures.items()}
        except KeyboardInterrupt:
            with starting:
                stopped = True
            for process in list(running.values()):
                process.terminate()
            raise KeyboardInterrupt("run it again to continue") from None
    return [name for name, code in codes.items() if code]


def _gpu_names() -> list[str]:
    """What CUDA_VISIBLE_DEVICES calls the GPUs that this process sees."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    names = [name.strip() for name in visible.split(",") if name.strip()] if visible else []
    return names or [str(i) for i in range(torch.cuda.device_count())]


@contextlib.contextmanager
def _until_stopped() -> Iterator[None]:
    """A block that SIGTERM ends as Ctrl-C does."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def submit(
    runs: Sequence[Launched], logs: Path, partition: str | None, cluster: Literal["slurm", "local"] = "slurm"
) -> list[Any]:
    """Submit a job for each run with submitit; jobs that are stopped before they are done are queued again.

    ``local`` runs the jobs as processes of this machine, all at once: submitit's stand-in for a cluster.
    """
    _must_have_submitit()
    import submitit

    try:
        executor = submitit.AutoExecutor(folder=logs, cluster=cluster)
    except RuntimeError as error:
        raise UserError(
            f"cannot submit to Slurm ({error}): call it where sbatch and srun are, or leave --slurm out"
        ) from error
    executor.update_parameters(name="normatch", timeout_min=60 * HOURS, gpus_per_node=_gpus(runs))
    if cluster == "slurm":
        executor.update_parameters(slurm_partition=partition, slurm_signal_delay_s=SIGNAL_SECONDS)
    with executor.batch():
        jobs: list[Any] = [executor.submit(run) for run in runs]
    return jobs


def sbatch(runs: Sequence[Launched], logs: Path, partition: str) -> str:
    """The script that ``submit`` would give to ``sbatch``, of all runs as one array of jobs."""
    _must_have_submitit()
    from submitit.slurm.slurm import _make_sbatch_string

    script: str = _make_sbatch_string(
        command=f"{sys.executable} -u -m submitit.core._submit {logs}",
        folder=logs,
        job_name="normatch",
        partition=partition,
        time=60 * HOURS,
        gpus_per_node=_gpus(runs),
        ntasks_per_node=1,
        signal_delay_s=SIGNAL_SECONDS,
        map_count=len(runs),
    )
    return script


def _gpus(runs: Sequence[Launched]) -> int:
    """GPUs of a job: none if the runs are for a CPU."""
    return int(any(run.config.device != "cpu" for run in runs))


def _must_have_submitit() -> None:
    import importlib.util

    if importlib.util.find_spec("submitit") is None:
        raise UserError("--slurm needs submitit, which is not installed: pip install 'normatch[slurm]'")
