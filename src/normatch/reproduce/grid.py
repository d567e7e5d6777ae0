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
from normatch.reproduce.paper import Study, find_studies
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
    """The runs of some studies, ordered by seed, so that a grid stopped early has all rows for some seeds."""

    studies: tuple[Study, ...]
    stand_in: str | None
    """A recipe in the place of the studies' own."""
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
        return {"stand_in": self.stand_in, "runs": runs, "missing": self.missing}

    def describe(self) -> str:
        """The runs and what is left of them, as text."""
        rows = [["run", "seeds", "steps", "of the schedule", "left"]]
        alike: dict[str, list[Planned]] = {}
        for run in self.runs:
            alike.setdefault(run.name.rpartition("-seed")[0], []).append(run)
        for name, runs in alike.items():
            steps, seeds = runs[0].config.steps, " ".join(str(run.config.seed) for run in runs)
            left = [f"{run.config.seed} from step {run.steps_done():,}" for run in runs if not run.ended]
            rows.append([name, seeds, f"{steps:,}", percent(steps / runs[0].whole), ", ".join(left) or "nothing"])
        to_go = sum(run.config.steps - run.steps_done() for run in self.runs)
        return "\n".join(
            [
                f"{', '.join(study.name for study in self.studies)}, into {self.out}",
                *(f"  {line}" for line in aligned(rows)),
                *(f"  {recipe} is left out: {why}" for recipe, why in self.missing.items()),
                f"{counted(len(self.runs), 'run')}, {len(self.left)} left with {counted(to_go, 'step')}",
            ]
        )

    def tables(self) -> list[Table]:
        """The studies, filled with all results so far."""
        results = [read_result(path) for path in sorted((self.out / "results").glob("*.json"))]
        return [Table(study, results, self.stand_in) for study in self.studies]

    def train(self, tell: Callable[[str], None], minutes: float | None = None) -> list[str]:
        """Train what is left, for at most so many minutes; return the names of the runs that failed.

        However it ends, runs that ended stay so, and the next call continues the others from their checkpoints.
        """
        (self.out / "results").mkdir(parents=True, exist_ok=True)
        self.tables()  # Before hours of training: a result that cannot be read would stop it after the first run.
        failed = []
        with _at_most(minutes) if minutes is not None else nullcontext():
            for run in self.left:
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
                _clear()
        return failed

    def write_page(self) -> Path:
        """Write ``results.md`` with the grid's tables and figures."""
        sections = [section(table, "results", self.out / "pictures") for table in self.tables()]
        return write_page(self.out / "results.md", "Results", sections)


def plan(
    name: str,
    *,
    steps: int | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    only: Sequence[str] = (),
    data: str | None = None,
    data_root: Path | None = None,
    device: Device = "auto",
    out: Path = Path("runs/reproduce"),
) -> Grid:
    """The runs of a table or figure, or of ``all``, that have a word of ``only`` in their name."""
    if not seeds or min(seeds) < 0 or len(set(seeds)) < len(seeds):
        raise UserError(f"seeds are {' '.join(map(str, seeds)) or 'none'}: give different numbers from 0 on")
    if steps is not None and steps < 1:
        raise UserError(f"steps is {steps}: give the steps of a run, 1 or more")
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file: choose another --out")
    studies, stand_in = find_studies(name), None if data is None else _recipe_for(data)
    if stand_in is not None:
        studies = tuple(study for study in studies if study.movable)
        if not studies:
            raise UserError(f"{name} is about its own data and cannot be trained on {data}: leave --data out")
    trials = {(t.recipe, t.name, t.epochs): t for study in studies for t in study.trials()}
    wanted = dict.fromkeys(stand_in or trial.recipe for trial in trials.values())
    missing = _missing(wanted, data_root)
    if len(missing) == len(wanted):
        hint = "; to try it without, add --data digits" if any(study.movable for study in studies) else ""
        raise UserError(next(iter(missing.values())) + hint)
    runs: dict[str, Planned] = {}
    for seed in seeds:
        for trial in trials.values():
            recipe = stand_in or trial.recipe
            if recipe in missing:
                continue
            config = trial.config(seed, steps, stand_in)
            run_name = f"{recipe}-{trial.name}-{config.steps}-seed{seed}"
            config = config.replace(name=run_name, device=device, data_root=data_root)
            whole = trial.config(seed, None, stand_in).steps
            planned = Planned(config, whole, out / "runs" / run_name, out / "results" / f"{run_name}.json")
            runs.setdefault(run_name, planned)
    kept = _kept(list(runs.values()), only)
    for run in kept:
        if run.ended and read_result(run.result).setting != setting(run.config):
            raise UserError(f"{run.result} is of other settings than a run would have now: choose another --out")
    return Grid(studies, stand_in, tuple(kept), missing, out)


def _kept(runs: list[Planned], only: Sequence[str]) -> list[Planned]:
    """The runs whose name has one of the words, each of which must be in one; all if there are no words."""
    unknown = [word or "''" for word in only if not word or not any(word in run.name for run in runs)]
    if unknown:
        names = sorted({run.name.rpartition("-seed")[0] for run in runs})
        raise UserError(f"no run is called {' or '.join(unknown)}: there are {', '.join(names)}")
    return [run for run in runs if not only or any(word in run.name for word in only)]


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


def _clear() -> None:
    """Free what a run has left behind: a step is part of a reference cycle, compiled code is kept per process."""
    gc.collect()
    if torch.cuda.is_available():
        torch.compiler.reset()
        torch.cuda.empty_cache()
