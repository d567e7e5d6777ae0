"""The pace of a run on this machine: how long its start, a step and an evaluation take, from a few seconds of it."""

import gc
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from normatch.training.bench import WARM_UP, seconds_of, stepping, wait
from normatch.training.job import Job

__all__ = ["SPARE", "Pace", "pace"]

SPARE = 0.05
"""Share of a time budget reserved for checkpoints and the end of a run."""


@dataclass(frozen=True)
class Pace:
    """Seconds that a run takes to start (up to its first step), per step, and per evaluation, in which the beginning of
    an epoch is included: by default each epoch has one."""

    start: float
    step: float
    evaluation: float
    memory: int | None = None
    """Peak bytes of GPU memory; None without a GPU."""

    def seconds_in(self, minutes: float) -> float:
        """Seconds that a run of ``minutes`` has for steps and evaluations; negative if it is too short to start."""
        return 60 * minutes * (1 - SPARE) - self.start

    def steps_in(self, minutes: float, *, evaluations: int = 0, every: float = math.inf) -> int:
        """Steps of a run of ``minutes`` with ``evaluations`` in total, or with one ``every`` that many steps.

        Below 1 if it is too short.

        >>> measured = Pace(start=7.0, step=0.5, evaluation=5.0)
        >>> measured.steps_in(1, evaluations=2), measured.steps_in(1, every=10)
        (80, 50)
        """
        seconds = self.seconds_in(minutes) - evaluations * self.evaluation
        return int(seconds / (self.step + self.evaluation / every))


def pace(job: Job, seconds: float = 3.0) -> Pace:
    """Measure how fast a job trains, by steps for about ``seconds`` and one evaluation. The job is used up."""
    measured = _measured(job, seconds)
    # A step is part of a reference cycle; uncollected, its images would occupy the device during the actual run.
    gc.collect()
    return measured


def _measured(job: Job, seconds: float) -> Pace:
    begin = time.perf_counter()
    with stepping(job) as loop:
        for _ in range(1 + (WARM_UP if job.runtime.capture else 1)):
            loop.step()
        wait(job.runtime)
        start = time.perf_counter() - begin
        step = _typical(lambda count: seconds_of(loop.step, count, job.runtime), seconds)
        evaluation = seconds_of(loop.examine, 1, job.runtime) + seconds_of(partial(loop.begin_epoch, 1), 1, job.runtime)
        memory = torch.cuda.max_memory_reserved() if job.runtime.on_gpu else None
        return Pace(start, step, evaluation, memory)


def _typical(time_of: Callable[[int], float], seconds: float) -> float:
    """The seconds of a step, from about ``seconds`` of steps; ``time_of`` times that many and gives the time of one.

    A step that takes at least half of ``seconds`` is timed up to three times and the fastest counts, since other
    programs can only slow it down; otherwise the median of three series counts.
    """
    once = time_of(1)
    if once >= seconds / 2:
        once = min(once, time_of(1), time_of(1))
    if once >= seconds / 2:
        return once
    steps = max(1, round(seconds / once / 3))
    return statistics.median(time_of(steps) for _ in range(3))
