"""What a call of ``normatch reproduce`` will do: which runs, how far each is, how long the others will take here."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from normatch.columns import aligned
from normatch.config import Config
from normatch.device import Device
from normatch.engine.job import open_corpus
from normatch.engine.progress import clock
from normatch.engine.runtime import Runtime
from normatch.errors import UserError
from normatch.recipes import recipes
from normatch.report.charts.axes import percent
from normatch.reproduce.budget import Budget
from normatch.reproduce.estimate import Paces
from normatch.reproduce.grid import Planned, keep, plan_runs, stand_in_for
from normatch.reproduce.paper import Study, find_studies

__all__ = ["Plan", "make_plan"]

MARGIN = 2
"""A run must have this many times the memory of its tensors: a process needs more than those."""


@dataclass(frozen=True)
class Plan:
    """What a call of ``reproduce`` will do."""

    studies: tuple[Study, ...]
    budget: Budget
    stand_in: str | None
    runs: tuple[Planned, ...]
    left: dict[str, float]
    """Seconds that each run will still take, about, by name."""
    missing: dict[str, str]
    """Why a recipe's data cannot be read, by recipe: its runs are left out."""
    at_once: int
    ahead: int
    """Runs that get ready while others train."""
    hidden: float
    """Seconds of starting that pass while other runs train, about."""
    out: Path

    @property
    def results(self) -> Path:
        """The folder with a file for each run that has ended."""
        return self.out / "results"

    @property
    def to_do(self) -> list[Planned]:
        return [run for run in self.runs if not run.finished]

    def whole(self, run: Planned) -> int:
        """Steps of the schedule that a run is the whole or a part of."""
        return run.trial.config(run.config.seed, self.stand_in).steps

    def to_json(self) -> dict[str, Any]:
        """The plan for a program."""
        runs = [
            {
                "name": run.name,
                "seed": run.config.seed,
                "steps": run.config.steps,
                "whole": self.whole(run),
                "steps_done": run.steps_done(),
                "finished": run.finished,
                "seconds_left": self.left[run.name],
            }
            for run in self.runs
        ]
        return {"budget": self.budget.text, "runs": runs, "missing": self.missing, "at_once": self.at_once}

    def describe(self) -> str:
        """The plan and its estimated time."""
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
            left = clock(sum(self.left[run.name] for run in runs))
            rows.append([name, seeds, f"{steps:,}", share, done + "".join(begun), left])
        titles = ", ".join(study.name for study in self.studies)
        finished = len(self.runs) - len(self.to_do)
        side = f", {self.at_once} at a time" if self.at_once > 1 else ""
        to_go = clock(sum(self.left.values()) - self.hidden)
        return "\n".join(
            [
                f"{titles}: {self.budget.describe()}, into {self.out}",
                *(f"  {line}" for line in aligned(rows)),
                *(f"  {recipe} is left out: {why}" for recipe, why in self.missing.items()),
                f"{len(self.runs)} runs, {finished} finished; about {to_go} to go{side}",
            ]
        )


def make_plan(
    name: str,
    *,
    budget: str = "full",
    seeds: Sequence[int] = (0, 1, 2),
    data: str | None = None,
    data_root: Path | None = None,
    device: Device = "auto",
    only: Sequence[str] = (),
    at_once: int = 1,
    out: Path = Path("runs/reproduce"),
) -> Plan:
    """Which runs a table or figure needs, which of them are done, and how long the others will take here."""
    if not seeds or min(seeds) < 0 or len(set(seeds)) < len(seeds):
        raise UserError(f"seeds are {' '.join(map(str, seeds)) or 'none'}: give different numbers from 0 on")
    if at_once < 1:
        raise UserError(f"at-once is {at_once}: give the number of runs to train at a time, 1 or more")
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file: choose another --out")
    parsed = Budget.parse(budget)
    stand_in, studies = stand_in_for(data, find_studies(name))
    where: dict[str, Any] = {"device": device, "data_root": data_root}
    wanted = dict.fromkeys(stand_in or trial.recipe for study in studies for trial in study.trials())
    missing = _missing(wanted, where)
    if len(missing) == len(wanted):
        raise UserError(next(iter(missing.values())))
    paces = Paces(out / "pace.json", **where)
    there = [recipe for recipe in wanted if recipe not in missing]
    in_time = {recipe: paces.steps_in(parsed.minutes, recipe) for recipe in there} if parsed.minutes else {}
    runs = plan_runs(studies, seeds, parsed, out, stand_in=stand_in, steps_in_time=in_time, without=missing, **where)
    runs = keep(runs, only)
    left = {run.name: paces.seconds_left(run) for run in runs}
    to_do = [run for run in runs if not run.finished]
    ahead = int(_room_for_one_more(to_do, at_once, paces))
    hidden = sum(paces.of(run.recipe).start for run in to_do[at_once:]) if ahead else 0.0
    return Plan(studies, parsed, stand_in, tuple(runs), left, missing, at_once, ahead, hidden, out)


def _missing(names: Iterable[str], where: dict[str, Any]) -> dict[str, str]:
    """Why the data of some recipes cannot be read. Many recipes share a data set, which is read once."""
    built = {name: recipes.get(name).build().replace(**where) for name in names}
    why = {data: _unreadable(config) for data, config in {c.data: c for c in built.values()}.items()}
    return {name: found for name, config in built.items() if (found := why[config.data])}


def _unreadable(config: Config) -> str | None:
    try:
        open_corpus(config)
    except UserError as error:
        return str(error)
    return None


def _room_for_one_more(runs: Sequence[Planned], at_once: int, paces: Paces) -> bool:
    """Whether a GPU can hold a run more than it trains; not where it is unknown what a run takes."""
    if len(runs) <= at_once or not Runtime.of(runs[0].config).on_gpu:
        return False
    needs = [paces.of(recipe).memory for recipe in {run.recipe for run in runs}]
    free, _ = torch.cuda.mem_get_info()
    return all(need is not None and (at_once + 1) * MARGIN * need <= free for need in needs)
