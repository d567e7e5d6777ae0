"""A run that fits into a user's time: its steps follow from the speed of a few, measured on this machine."""

import math

from normatch.autoconfig.rules import EPOCHS, Choices, choose_epoch, choose_momentum, choose_muon, choose_records
from normatch.config import Config
from normatch.data import Corpus
from normatch.errors import UserError
from normatch.text import counted
from normatch.training.job import prepare
from normatch.training.pace import Pace, pace

__all__ = ["fit_into_minutes"]

EVALUATING = 0.2
"""Largest share of a time budget to spend on evaluations."""


def fit_into_minutes(
    config: Config, corpus: Corpus | None, minutes: float, fixed: frozenset[str], automatic: bool
) -> Choices:
    """What of the config becomes other than it is; with ``automatic`` also what the user's own data leaves open."""
    speed = pace(prepare(config, corpus))
    epochs, due = (max(1, config.steps // every) for every in (config.epoch, config.evaluate_every or config.epoch))
    affordable = int(EVALUATING * speed.seconds_in(minutes) / speed.evaluation)
    evaluations = max(1, min(due, affordable))
    if "evaluate_every" in fixed:
        every = config.evaluate_every
    else:
        every = config.epoch if "epoch" in fixed and config.evaluate_every is None else None
    if every is None:
        steps = speed.steps_in(minutes, evaluations=evaluations)
    else:
        # The one evaluation is that after the last step.
        steps = speed.steps_in(minutes, evaluations=1, every=every)
    if steps < 1:
        needed = speed.start + speed.step + speed.evaluation
        raise UserError(f"minutes is {minutes:g}: too few for one step, which takes {needed:.1f} s with the start")
    choices = Choices(config, fixed)
    choices.set("steps", steps, _pace_reason(minutes, speed, every))
    epoch = config.epoch if "epoch" in fixed else math.ceil(steps / epochs)
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


def _choose_interval(choices: Choices, name: str, times: int) -> None:
    """Choose how often something is done, so that it is done at most ``times`` in the run."""
    every = math.ceil(choices.config.steps / times)
    what = {"evaluate_every": "evaluation", "checkpoint_every": "checkpoint"}[name]
    choices.set(name, every, counted(math.ceil(choices.config.steps / every), what))


def _pace_reason(minutes: float, speed: Pace, every: int | None) -> str:
    unit = "minute" if minutes == 1 else "minutes"
    evaluating = f" and {speed.evaluation:.2g} s for an evaluation every {every:,}" if every else ""
    return f"{minutes:g} {unit} at {1 / speed.step:.2f} steps/s{evaluating}, measured on this machine"
