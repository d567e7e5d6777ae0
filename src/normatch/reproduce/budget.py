"""Budgets: how much of the paper's schedule a run gets."""

import math
from dataclasses import dataclass

from normatch.config import Config
from normatch.errors import UserError
from normatch.reproduce.paper import Trial
from normatch.text import counted

__all__ = ["BETWEEN_EVALUATIONS", "EVALUATIONS", "Budget", "in_steps", "scaled"]

EPOCHS = 300
"""Most epochs with ``--budget 300``: the schedule of the paper's analysis (Section 4.2), here for all tables."""

QUICK = 1024
"""Most steps with ``--budget quick``."""

BETWEEN_EVALUATIONS = 1024
"""Steps between evaluations, unless a run would then have fewer than ``EVALUATIONS``."""

EVALUATIONS = 20
"""Least number of evaluations of a shortened run: the published code reports the mean of the last 20."""

QUICK_SHARE = 0.1
"""Largest share of a schedule that ``--budget quick`` runs."""


@dataclass(frozen=True)
class Budget:
    """``full``: the paper's schedule. ``300``: at most 300 epochs. ``quick``: a short trial. Else the minutes of each
    run, or its steps as in ``20480steps``."""

    text: str
    minutes: float | None = None
    steps: int | None = None

    @classmethod
    def parse(cls, text: str) -> "Budget":
        """The budget that ``text`` describes.

        >>> Budget.parse("7.5").minutes, Budget.parse("20480steps").steps
        (7.5, 20480)
        """
        if text in ("full", "300", "quick"):
            return cls(text)
        number = text.removesuffix("steps")
        try:
            if number != text:
                steps = int(number)
                if steps > 0:
                    return cls(text, steps=steps)
            elif 0 < float(number) < math.inf:
                return cls(text, minutes=float(number))
        except ValueError:
            pass
        raise UserError(f"budget is {text!r}: give full, 300, quick, the minutes that each run may take, or 20480steps")

    def apply(self, trial: Trial, seed: int, stand_in: str | None = None, in_time: int | None = None) -> Config:
        """The trial's config within the budget; ``in_time`` is the number of steps that fit into its minutes."""
        if self.text == "full":
            return trial.config(seed, stand_in)
        short = trial.config(seed, stand_in, EPOCHS)
        if self.text == "300":
            return short
        if self.text == "quick":
            return scaled(short, min(QUICK, max(1, round(QUICK_SHARE * short.steps))))
        steps = self.steps or in_time
        if steps is None:
            raise ValueError("a budget of minutes needs the speed of a step")
        return in_steps(trial, seed, steps, stand_in)

    def describe(self) -> str:
        words = {"full": "the whole schedule", "300": f"at most {EPOCHS} epochs", "quick": "a quick trial"}
        minutes = f"{self.text} {'minute' if self.minutes == 1 else 'minutes'}"
        each = counted(self.steps, "step") if self.steps else minutes
        return words.get(self.text, f"at most {each} a run")


def in_steps(trial: Trial, seed: int, steps: int, stand_in: str | None = None) -> Config:
    """The trial's config scaled to ``steps``, at most to its whole schedule.

    If that is less than 300 epochs, a schedule of 300 epochs is scaled, whatever the paper's schedule for the trial.
    """
    short = trial.config(seed, stand_in, EPOCHS)
    if steps <= short.steps:
        return scaled(short, steps)
    whole = trial.config(seed, stand_in)
    return scaled(whole, min(steps, whole.steps))


def scaled(config: Config, steps: int) -> Config:
    """The whole schedule of ``config`` scaled to ``steps``, including all that is counted in epochs (ramps, records).

    Each epoch gets shorter, by whole steps, so that their number stays about the same until they have only a few;
    evaluations stay rare enough to cost little.
    """
    if steps == config.steps:
        return config
    epoch = max(1, round(config.epoch * steps / config.steps))
    evaluate_every = max(epoch, min(BETWEEN_EVALUATIONS, math.ceil(steps / EVALUATIONS)))
    return config.replace(
        steps=steps,
        epoch=epoch,
        log_every=min(config.log_every, max(1, steps // 40)),
        evaluate_every=evaluate_every,
        checkpoint_every=evaluate_every,
    )
