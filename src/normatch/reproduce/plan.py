"""Plan a call of ``normatch reproduce``: its runs, their progress, and the estimated time of those left."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from normatch.config import Config
from normatch.device import Device
from normatch.errors import UserError
from normatch.recipes import recipes
from normatch.reproduce.budget import Budget
from normatch.reproduce.estimate import Paces
from normatch.reproduce.grid import Planned, keep, plan_runs, stand_in_for
from normatch.reproduce.paper import Study, find_studies
from normatch.reproduce.results import question
from normatch.text import aligned, counted, percent
from normatch.training.job import open_corpus
from normatch.training.progress import clock
from normatch.training.runtime import Runtime

__all__ = ["Plan", "make_plan"]

MARGIN = 2
"""GPU memory to allow for a run, as a multiple of that of its tensors: a process needs more than its tensors."""


@dataclass(frozen=True)
class Plan:
    """The plan of a call of ``reproduce``."""

    studies: tuple[Study, ...]
    budget: Budget
    stand_in: str | None
    runs: tuple[Planned, ...]
    left: dict[str, float | None]
    """Estimated seconds left of each run, by name; None if it was not timed."""
    missing: dict[str, str]
    """For recipes whose data cannot be read, and whose runs are left out: the reason."""
    at_once: int
    ahead: int
    """Number of runs that get ready while others train."""
    hidden: float
    """Estimated seconds of start-up that overlap with the training of other runs."""
    out: Path

    @property
    def results(self) -> Path:
        """The folder with a result file for each run that has ended."""
        return self.out / "results"

    @property
    def to_do(self) -> list[Planned]:
        return [run for run in self.runs if not run.finished]

    def whole(self, run: Planned) -> int:
        """Steps of the whole schedule of a run's trial, of which the run may be a shortened version."""
        return run.trial.config(run.config.seed, self.stand_in).steps

    def to_json(self) -> dict[str, Any]:
        """The plan, JSON-ready."""
        runs = [
            {
                "name": run.name,
                "seed": run.config.seed,
                "steps": run.config.steps,
                "whole": self.whole(run),
                "steps_done": run.steps_done(),
                "finished": run.finished,
                "seconds_left": 0.0 if run.finished else self.left[run.name],
            }
            for run in self.runs
        ]
        return {
            "budget": self.budget.text,
            "stand_in": self.stand_in,
            "runs": runs,
            "missing": self.missing,
            "at_once": self.at_once,
        }

    def describe(self) -> str:
        """The plan and its estimated time, as text."""
        rows = [["run", "label seeds", "steps", "of the schedule", "finished", "about"]]
        alike: dict[str, list[Planned]] = {}
        for run in self.runs:
            alike.setdefault(run.name.rpartition("-seed")[0], []).append(run)
        for name, runs in alike.items():
            steps = runs[0].config.steps
            share = percent(steps / self.whole(runs[0]))
            done = f"{sum(run.finished for run in runs)} of {len(runs)}"
            begun = [f", seed {run.config.seed} at step {run.steps_done():,}" for run in runs if run.under_way]
            seeds = " ".join(str(run.config.seed) for run in runs)
            left = self._seconds_left(runs)
            about = "not timed" if left is None else clock(left)
            rows.append([name, seeds, f"{steps:,}", share, done + "".join(begun), about])
        titles = ", ".join(study.name for study in self.studies)
        finished = len(self.runs) - len(self.to_do)
        side = f", {self.at_once} at a time" if self.at_once > 1 else ""
        left = self._seconds_left(self.runs)
        to_go = (
            "the time left shows while it trains" if left is None else f"about {clock(left - self.hidden)} to go{side}"
        )
        return "\n".join(
            [
                f"{titles}: {self.budget.describe()}, into {self.out}",
                *(f"  {line}" for line in aligned(rows)),
                *(f"  {recipe} is left out: {why}" for recipe, why in self.missing.items()),
                f"{counted(len(self.runs), 'run')}, {finished} finished; {to_go}",
            ]
        )

    def _seconds_left(self, runs: Sequence[Planned]) -> float | None:
        """The estimated seconds left of some runs together; None if one of them was not timed."""
        left = [seconds for run in runs if (seconds := self.left[run.name]) is not None]
        return sum(left) if len(left) == len(runs) else None


def make_plan(
    name: str,
    *,
    budget: str = "full",
    seeds: Sequence[int] = (0, 1, 2),
    data: str | None = None,
    recipe: str | None = None,
    data_root: Path | None = None,
    device: Device = "auto",
    only: Sequence[str] = (),
    at_once: int = 1,
    out: Path = Path("runs/reproduce"),
    timed: bool = False,
) -> Plan:
    """Plan the runs of a table or figure, and estimate the time of those not finished.

    To time a single run takes another start of it, after which it tells its time itself: unless the speed is known
    already, that is done only if the plan must be ``timed``.
    """
    if not seeds or min(seeds) < 0 or len(set(seeds)) < len(seeds):
        raise UserError(f"seeds are {' '.join(map(str, seeds)) or 'none'}: give different numbers from 0 on")
    if at_once < 1:
        raise UserError(f"at-once is {at_once}: give the number of runs to train at a time, 1 or more")
    for folder in (out, out / "runs", out / "results"):
        if folder.exists() and not folder.is_dir():
            raise UserError(f"{folder} is a file: choose another --out")
    parsed = Budget.parse(budget)
    stand_in, studies = stand_in_for(data, find_studies(name), recipe)
    where: dict[str, Any] = {"device": device, "data_root": data_root}
    wanted = dict.fromkeys(stand_in or trial.recipe for study in studies for trial in study.trials())
    missing = _missing(wanted, where)
    if len(missing) == len(wanted):
        raise UserError(_all_missing(missing, can_stand_in=stand_in is None and any(s.movable for s in studies)))
    paces = Paces(out / "pace.json", **where)
    available = [recipe for recipe in wanted if recipe not in missing]
    in_time = {recipe: paces.steps_in(parsed.minutes, recipe) for recipe in available} if parsed.minutes else {}
    runs = plan_runs(studies, seeds, parsed, out, stand_in=stand_in, steps_in_time=in_time, without=missing, **where)
    runs = keep(runs, only)
    for run in runs:
        if run.finished and question(run.run().config) != question(run.config):
            raise UserError(f"{run.folder} was trained with other settings than it would be now: choose another --out")
    to_do = [run for run in runs if not run.finished]
    timed = timed or len(to_do) > 1 or all(paces.knows(run.recipe) for run in to_do)
    left = {run.name: paces.seconds_left(run) if timed or run.finished else None for run in runs}
    ahead = int(_room_for_one_more(to_do, at_once, paces))
    hidden = sum(paces.of(run.recipe).start for run in to_do[at_once:]) if ahead else 0.0
    return Plan(studies, parsed, stand_in, tuple(runs), left, missing, at_once, ahead, hidden, out)


def _missing(names: Iterable[str], where: dict[str, Any]) -> dict[str, str]:
    """The recipes whose data cannot be read, with the reasons. A data set that recipes share is read only once."""
    built = {name: recipes.get(name).build().replace(**where) for name in names}
    why = {data: _unreadable(config) for data, config in {c.data: c for c in built.values()}.items()}
    return {name: found for name, config in built.items() if (found := why[config.data])}


def _all_missing(missing: dict[str, str], *, can_stand_in: bool) -> str:
    """One line for a plan without any data: why the first data set cannot be read, the names of the others, and the
    data set that can stand in for them because it needs no files."""
    first, *others = dict.fromkeys(recipes.get(name).build().data for name in missing)
    why = next(iter(missing.values()))
    too = f"; {', '.join(others)} cannot be read either" if others else ""
    return why + too + (f"; to try it without {first}, add --data digits" if can_stand_in else "")


def _unreadable(config: Config) -> str | None:
    try:
        open_corpus(config)
    except UserError as error:
        return str(error)
    return None


def _room_for_one_more(runs: Sequence[Planned], at_once: int, paces: Paces) -> bool:
    """Whether the GPU has memory for one run more than it trains; False if the memory of a run is unknown."""
    if len(runs) <= at_once or not Runtime.of(runs[0].config).on_gpu:
        return False
    needs = [paces.of(recipe).memory for recipe in {run.recipe for run in runs}]
    free, _ = torch.cuda.mem_get_info()
    return all(need is not None and (at_once + 1) * MARGIN * need <= free for need in needs)
