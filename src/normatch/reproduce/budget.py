"""How much of the paper's schedule a run gets."""

import math
from dataclasses import dataclass

from normatch.config import Config
from normatch.errors import UserError
from normatch.reproduce.paper import Trial

__all__ = ["BETWEEN_EVALUATIONS", "EVALUATIONS", "Budget", "in_steps", "scaled"]

EPOCHS = 300
"""Of ``--budget 300``: the schedule of the paper's analysis (Section 4.2), for its other tables too."""

QUICK = 1024
"""Steps of ``--budget quick``, at most."""

BETWEEN_EVALUATIONS = 1024
"""Steps, unless a run is so short that it would have fewer than ``EVALUATIONS``."""

EVALUATIONS = 20
"""At the least: the mean of so many last ones is what the published code reports."""

QUICK_SHARE = 0.1
"""Of a schedule that is short itself."""


@dataclass(frozen=True)
class Budget:
    """``full``: the paper's schedule. ``300``: at most 300 epochs of it. ``quick``: to see it work. Else what each run
    gets: minutes, or with ``20480steps`` steps."""

    text: str
    minutes: float | None = None
    steps: int | None = None

    @classmethod
    def parse(cls, text: str) -> "Budget":
        """
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
        """The trial's config within the budget; ``in_time`` are the steps that fit into one of minutes."""
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
        numbers = f"{self.steps:,} steps a run" if self.steps else f"{self.text} minutes a run"
        return words.get(self.text, numbers)


def in_steps(trial: Trial, seed: int, steps: int, stand_in: str | None = None) -> Config:
    """The trial in ``steps``, or in its whole schedule where that is less.

    What is shorter than 300 epochs is 300 epochs made shorter, whatever the paper's schedule for the trial is.
    """
    short = trial.config(seed, stand_in, EPOCHS)
    if steps <= short.steps:
        return scaled(short, steps)
    whole = trial.config(seed, stand_in)
    return scaled(whole, min(steps, whole.steps))


def scaled(config: Config, steps: int) -> Config:
    """The whole schedule of ``config`` in ``steps``: what is counted in epochs (ramps, records) shrinks with them.

    An epoch is shorter then, but there are as many; evaluations stay rare enough to cost little.
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
        checkpoint_every=max(evaluate_every, 1024),
    )
