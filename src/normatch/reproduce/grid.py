"""Train what tables and figures need: each run once, one after another in one process, restartable."""

import gc
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from normatch.config import Config
from normatch.device import Device
from normatch.errors import UserError
from normatch.recipes import recipes
from normatch.reproduce.pages import section, write_page
from normatch.reproduce.paper import FIXED_GRID, STUDIES, Study
from normatch.reproduce.results import Table, diverged, read_result, setting, write_result
from normatch.text import aligned, counted, percent
from normatch.training.checkpoint import newest_step
from normatch.training.job import open_corpus
from normatch.training.progress import Lines
from normatch.training.run import Run
from normatch.training.train import train

__all__ = ["Grid", "Planned", "plan"]


@dataclass(frozen=True)
class Planned:
    """One run of a grid, its folder and the file of its result, which is written when it has ended."""

    config: Config
    whole: int
    """Steps of the whole schedule, of which the run may be a shortened version."""
    folder: Path
    result: Path

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def ended(self) -> bool:
        return self.result.is_file()

    def steps_done(self) -> int:
        """Steps that are finished or saved in a checkpoint."""
        return self.config.steps if self.ended else newest_step(self.folder / "checkpoint")


@dataclass(frozen=True)
class Grid:
    """The runs of some studies, in the order in which they are trained."""

    studies: tuple[Study, ...]
    runs: tuple[Planned, ...]
    missing: dict[str, str]
    """For recipes whose data cannot be read, and whose runs are left out: the reason."""
    out: Path

    @property
    def left(self) -> list[Planned]:
        return [run for run in self.runs if not run.ended]

    def to_json(self) -> dict[str, Any]:
        """The runs and their progress, JSON-ready."""
        runs = [
            {
                "name": run.name,
                "seed": run.config.seed,
                "steps": run.config.steps,
                "whole": run.whole,
                "steps_done": run.steps_done(),
                "ended": run.ended,
            }
            for run in self.runs
        ]
        return {"runs": runs, "missing": self.missing}

    def describe(self) -> str:
        """The runs and what is left of them, as text."""
        rows = [["run", "seeds", "steps", "of the schedule", "steps left"]]
        alike: dict[str, list[Planned]] = {}
        for run in self.runs:
            alike.setdefault(run.name.rpartition("-seed")[0], []).append(run)
        for name, runs in alike.items():
            steps, seeds = runs[0].config.steps, " ".join(str(run.config.seed) for run in runs)
            left = [f"{steps - run.steps_done():,} of seed {run.config.seed}" for run in runs if not run.ended]
            rows.append([name, seeds, f"{steps:,}", percent(steps / runs[0].whole), ", ".join(left) or "nothing"])
        return "\n".join(
            [
                f"{', '.join(study.name for study in self.studies)}, into {self.out}",
                *(f"  {line}" for line in aligned(rows)),
                *(f"  {recipe} is left out: {why}" for recipe, why in self.missing.items()),
                self.describe_left(),
            ]
        )

    def describe_left(self) -> str:
        """How much is left, and what another machine needs to continue."""
        to_go = sum(run.config.steps - run.steps_done() for run in self.left)
        begun = [f"runs/{run.name}" for run in self.left if run.steps_done()]
        copied = f"; to continue elsewhere, copy {', '.join(['results', *begun])}" if begun else ""
        return f"{counted(len(self.runs), 'run')}, {len(self.left)} left with {counted(to_go, 'step')}{copied}"

    def tables(self) -> list[Table]:
        """The studies, filled with all results so far."""
        results = [read_result(path) for path in sorted((self.out / "results").glob("*.json"))]
        return [Table(study, results) for study in self.studies]

    def train(self, tell: Callable[[str], None], minutes: float | None = None, but: Sequence[str] = ()) -> list[str]:
        """Train what is left, ``but`` for some names, for at most so many minutes; return the names that failed.

        However it ends, runs that ended stay so, and the next call continues the others from their checkpoints. A step
        that a run has compiled serves all later runs that differ in seed or length alone.
        """
        (self.out / "results").mkdir(parents=True, exist_ok=True)
        self.tables()  # Before hours of training: a result that cannot be read would stop it after the first run.
        failed = []
        with _at_most(minutes) if minutes is not None else nullcontext():
            for run in (run for run in self.left if run.name not in but):
                try:
                    train(run.config, run.folder, resume=run.folder.exists(), progress=Lines(run.name))
                    tell(Run(run.folder).describe())
                except UserError as error:
                    tell(f"{run.name} failed: {error}")
                    failed.append(run.name)
                    if not run.folder.exists() or not diverged(Run(run.folder)):
                        continue
                write_result(Run(run.folder), run.result, run.whole)
                self.write_page()
                gc.collect()  # A step is part of a reference cycle, and holds most of the GPU's memory.
                torch.cuda.empty_cache()
        return failed

    def write_page(self) -> Path:
        """Write ``results.md`` with the grid's tables and figures."""
        sections = [section(table, "results", self.out / "pictures") for table in self.tables()]
        return write_page(self.out / "results.md", "Results", sections)


def plan(
    name: str,
    *,
    steps: int | None = None,
    seeds: Sequence[int] = (),
    only: Sequence[str] = (),
    data: str | None = None,
    data_root: Path | None = None,
    device: Device = "auto",
    out: Path = Path("runs/reproduce"),
) -> Grid:
    """The runs of a table or figure, of ``all``, or of the fixed ``grid``, that have a word of ``only`` in their name.

    By default the seeds of a table are 0 to 2, and those of the fixed grid its own.
    """
    if any(seed < 0 for seed in seeds) or len(set(seeds)) < len(seeds):
        raise UserError(f"seeds are {' '.join(map(str, seeds))}: give different numbers from 0 on")
    if steps is not None and steps < 1:
        raise UserError(f"steps is {steps}: give the steps of a run, 1 or more")
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file: choose another --out")
    studies = _studies(name)
    movable = [study for study in studies if study.movable and name != "grid"]
    if data is not None:
        recipe = _recipe_for(data)
        studies = [study.on(recipe) for study in movable]
        if not studies:
            raise UserError(f"{name} is about its own data and cannot be trained on {data}: leave --data out")
    # By seed, so that a grid stopped early has all rows for some seeds.
    wanted = [(trial, seed) for seed in seeds or range(3) for study in studies for trial in study.trials()]
    if name == "grid":
        wanted = [(trial, seed) for trial, seed in FIXED_GRID if not seeds or seed in seeds]
    needed = dict.fromkeys(trial.recipe for trial, _ in wanted)
    missing = _missing(needed, data_root)
    if missing and len(missing) == len(needed):
        hint = "; to try it without, add --data digits" if movable else ""
        raise UserError(next(iter(missing.values())) + hint)
    runs: dict[str, Planned] = {}
    for trial, seed in wanted:
        config = trial.config(seed, steps)
        run_name = f"{trial.recipe}-{trial.name}-{config.steps}-seed{seed}"
        if trial.recipe not in missing and run_name not in runs:
            config = config.replace(name=run_name, device=device, data_root=data_root)
            whole = trial.config(seed).steps
            runs[run_name] = Planned(config, whole, out / "runs" / run_name, out / "results" / f"{run_name}.json")
    unknown = [word or "''" for word in only if not word or not any(word in name for name in runs)]
    if unknown:
        names = sorted({name.rpartition("-seed")[0] for name in runs})
        raise UserError(f"no run is called {' or '.join(unknown)}: there are {', '.join(names)}")
    kept = [run for run in runs.values() if not only or any(word in run.name for word in only)]
    for run in kept:
        if run.ended and read_result(run.result).setting != setting(run.config):
            raise UserError(f"{run.result} is of other settings than a run would have now: choose another --out")
    return Grid(tuple(studies), tuple(kept), missing, out)


def _studies(name: str) -> list[Study]:
    if name == "all":
        return list(STUDIES.values())
    if name == "grid":
        return [STUDIES[name] for name in ("controls", "fast", "table3")]
    if name not in STUDIES:
        raise UserError(f"unknown table or figure {name!r}: choose from all, grid, {', '.join(STUDIES)}")
    return [STUDIES[name]]


def _recipe_for(data: str) -> str:
    """The recipe for a data set that has the fewest labels."""
    built = {name: recipe.build() for name, recipe in recipes.items()}
    found = {name: config.labels or 0 for name, config in built.items() if config.data == data}
    if not found:
        known = dict.fromkeys(config.data for config in built.values())
        raise UserError(f"data is {data!r}, which no recipe is for: choose from {', '.join(known)}")
    return min(found, key=lambda name: found[name])


def _missing(names: Iterable[str], data_root: Path | None) -> dict[str, str]:
    """The recipes whose data cannot be read, with the reasons. A data set that recipes share is read only once."""
    found: dict[str, str] = {}
    configs = {name: recipes.get(name).build().replace(data_root=data_root) for name in names}
    for data, config in {config.data: config for config in configs.values()}.items():
        try:
            open_corpus(config)
        except UserError as error:
            found |= {name: str(error) for name, other in configs.items() if other.data == data}
    return found


@contextmanager
def _at_most(minutes: float) -> Iterator[None]:
    """End the block after so many minutes; a run that is being trained saves a checkpoint, as it does at SIGTERM."""
    over = False

    def stop(*_: object) -> None:
        nonlocal over
        over = True
        if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:  # between two runs
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGTERM)

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 60 * minutes)
    try:
        yield
    except KeyboardInterrupt:
        if not over:
            raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
