"""Estimate how long runs will take: a few steps of each recipe are timed once, and the times stored with the runs."""

import dataclasses
import math
import zlib
from functools import partial
from pathlib import Path
from typing import Any

from normatch.config import Config
from normatch.errors import UserError, reason
from normatch.files import read_object, write_json
from normatch.reproduce.budget import BETWEEN_EVALUATIONS, EVALUATIONS
from normatch.reproduce.children import apart
from normatch.reproduce.grid import Planned
from normatch.reproduce.paper import Trial
from normatch.reproduce.results import question
from normatch.reproduce.turns import turn
from normatch.training.job import prepare
from normatch.training.pace import Pace, pace
from normatch.training.runtime import Runtime

__all__ = ["Paces"]


class Paces:
    """The speed of each recipe on this machine, measured with NorMatch and used for all methods.

    Measurements are stored in a file, so that a budget of minutes gives the same steps when a grid is continued. One
    process at a time measures, so that none slows down another's steps or overwrites its result.
    """

    def __init__(self, file: Path, **where: Any) -> None:
        self._file, self._where = file, where

    def knows(self, recipe: str) -> bool:
        """Whether it was measured before."""
        config = self._config(recipe)
        return _key(recipe, config, Runtime.of(config)) in _known(self._file)

    def of(self, recipe: str) -> Pace:
        config = self._config(recipe)
        runtime = Runtime.of(config)
        key = _key(recipe, config, runtime)
        if key not in _known(self._file):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with turn(self._file.parent, 1, "pace"):
                if key not in _known(self._file):  # Another process may have measured it while this one waited.
                    measure = partial(apart, _measure) if runtime.on_gpu else _measure
                    measure(config, self._file, key)
        try:
            return Pace(**_known(self._file)[key])
        except (KeyError, TypeError) as error:
            raise UserError(
                f"the speed of {recipe} could not be measured: see above, or delete {self._file}"
            ) from error

    def steps_in(self, minutes: float, recipe: str) -> int:
        """Steps of a run of ``minutes``, rounded down to a multiple of 1024 if there are as many."""
        measured = self.of(recipe)
        steps = min(
            measured.steps_in(minutes, every=BETWEEN_EVALUATIONS), measured.steps_in(minutes, evaluations=EVALUATIONS)
        )
        if steps < 1:
            raise UserError(
                f"budget is {minutes:g} minutes: a run of {recipe} takes {measured.start:.0f} s to start "
                f"and {EVALUATIONS * measured.evaluation:.0f} s for its evaluations; give more"
            )
        return steps if steps < 1024 else steps // 1024 * 1024

    def seconds_left(self, planned: Planned) -> float:
        """Estimated seconds until a run is finished."""
        if planned.finished:
            return 0.0
        measured = self.of(planned.recipe)
        steps = planned.config.steps - planned.steps_done()
        every = planned.config.evaluate_every or planned.config.epoch
        return measured.start + steps * measured.step + math.ceil(steps / every) * measured.evaluation

    def _config(self, recipe: str) -> Config:
        return Trial("normatch", recipe).config(0, stand_in=recipe).replace(**self._where)


def _key(recipe: str, config: Config, runtime: Runtime) -> str:
    """The recipe, its numbers, which another version may have changed, and the hardware."""
    return f"{recipe} ({zlib.crc32(question(config).encode()):08x}) on {runtime.describe()}"


def _measure(config: Config, file: Path, key: str) -> None:
    measured = dataclasses.asdict(pace(prepare(config)))
    write_json(file, _known(file) | {key: measured})


def _known(file: Path) -> dict[str, Any]:
    try:
        return read_object(file) if file.is_file() else {}
    except ValueError as error:
        raise UserError(
            f"{file} cannot be read ({reason(error)}): delete it, and the speeds in it are measured again"
        ) from error
