"""A run that fits into a user's time: its steps follow from the speed of a few, measured on this machine."""

import gc
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from normatch.autoconfig.rules import (
    EPOCHS,
    LEAST_BATCH,
    Choices,
    choose_epoch,
    choose_momentum,
    choose_muon,
    choose_records,
)
from normatch.config import Config
from normatch.data import Corpus
from normatch.errors import UserError
from normatch.text import counted
from normatch.training.bench import WARM_UP, seconds_of, stepping, wait
from normatch.training.job import Job, prepare

__all__ = ["LEAST_STEPS", "Pace", "fit_into_minutes", "pace"]

SPARE = 0.05
"""Share of a time budget reserved for checkpoints and the end of a run."""

EVALUATING = 0.2
"""Largest share of a time budget to spend on evaluations."""

LEAST_STEPS = 100
"""Steps below which a run is a trial that learns little (38 % after 8 steps, once): its warnings begin there, too."""


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


def fit_into_minutes(
    config: Config, corpus: Corpus | None, minutes: float, fixed: frozenset[str], automatic: bool
) -> Choices:
    """What of the config becomes other than it is; with ``automatic`` also what the user's own data leaves open.

    A run of less than LEAST_STEPS steps gets smaller batches if they are open, and is refused if that is not enough.
    """
    choices = Choices(config, fixed)
    speed = pace(prepare(config, corpus))
    steps = _steps_in(minutes, speed, config, fixed)
    if 0 < steps < LEAST_STEPS and automatic:
        _choose_smaller_batch(choices, steps)
        if choices.made:
            speed = pace(prepare(choices.config, corpus))
            steps = _steps_in(minutes, speed, config, fixed)
    if steps < LEAST_STEPS:
        needed = (speed.start + LEAST_STEPS * speed.step + speed.evaluation) / (60 * (1 - SPARE))
        raise UserError(
            f"minutes is {minutes:g}: at {1 / speed.step:.2g} steps/s, measured on this machine, too few for "
            f"{LEAST_STEPS} steps, the least that teach a network something: give --minutes {math.ceil(needed)}, a "
            "smaller --image-size, --backbone or --batch, or the number of --steps"
        )
    every = _evaluate_every(config, fixed)
    choices.set("steps", steps, _pace_reason(minutes, speed, every))
    epochs = max(1, config.steps // config.epoch)
    epoch = config.epoch if "epoch" in fixed else math.ceil(steps / epochs)
    evaluations = _evaluations_in(minutes, speed, config)
    # Not by longer epochs, which are also the unit of a method's ramps.
    if every is None and (config.evaluate_every or evaluations < math.ceil(steps / epoch)):
        _choose_interval(choices, "evaluate_every", evaluations)
    if config.checkpoint_every or math.ceil(steps / epoch) > EPOCHS:
        _choose_interval(choices, "checkpoint_every", EPOCHS)
    choose_epoch(choices, epoch)
    choose_records(choices)
    if automatic:
        choose_momentum(choices)
        choose_muon(choices)
    return choices


def _steps_in(minutes: float, speed: Pace, config: Config, fixed: frozenset[str]) -> int:
    every = _evaluate_every(config, fixed)
    if every is None:
        return speed.steps_in(minutes, evaluations=_evaluations_in(minutes, speed, config))
    # The one evaluation is that after the last step.
    return speed.steps_in(minutes, evaluations=1, every=every)


def _evaluate_every(config: Config, fixed: frozenset[str]) -> int | None:
    """The steps between two evaluations if the user has given them; else None."""
    if "evaluate_every" in fixed:
        return config.evaluate_every
    return config.epoch if "epoch" in fixed and config.evaluate_every is None else None


def _evaluations_in(minutes: float, speed: Pace, config: Config) -> int:
    """As many evaluations as the config has, if they take no more than their share of the time."""
    due = max(1, config.steps // (config.evaluate_every or config.epoch))
    return max(1, min(due, int(EVALUATING * speed.seconds_in(minutes) / speed.evaluation)))


def _choose_smaller_batch(choices: Choices, steps: int) -> None:
    """Choose batch and ratio with as many images as leave time for LEAST_STEPS steps where there was for ``steps``."""
    config = choices.config
    images = config.batch * (1 + config.ratio) * steps / LEAST_STEPS
    why = f"{counted(steps, 'step')} with {config.batch * (1 + config.ratio)} images each would not learn"
    batch = min(config.batch, max(LEAST_BATCH, 2 ** int(math.log2(max(1, images / (1 + config.ratio))))))
    if batch < config.batch:
        choices.set("batch", batch, why)
    ratio = max(1, min(config.ratio, int(images / choices.config.batch) - 1))
    if ratio < config.ratio:
        choices.set("ratio", ratio, why)


def _choose_interval(choices: Choices, name: str, times: int) -> None:
    """Choose how often something is done, so that it is done at most ``times`` in the run."""
    every = math.ceil(choices.config.steps / times)
    what = {"evaluate_every": "evaluation", "checkpoint_every": "checkpoint"}[name]
    choices.set(name, every, counted(math.ceil(choices.config.steps / every), what))


def _pace_reason(minutes: float, speed: Pace, every: int | None) -> str:
    unit = "minute" if minutes == 1 else "minutes"
    evaluating = f" and {speed.evaluation:.2g} s for an evaluation every {every:,}" if every else ""
    return f"{minutes:g} {unit} at {1 / speed.step:.2f} steps/s{evaluating}, measured on this machine"
