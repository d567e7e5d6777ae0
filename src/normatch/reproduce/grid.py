"""The runs that tables and figures need: each once, with its folder and its progress."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from normatch.config import Config
from normatch.errors import UserError
from normatch.recipes import recipes
from normatch.reproduce.budget import Budget
from normatch.reproduce.paper import ANALYSED, Study, Trial
from normatch.training.checkpoint import newest_step
from normatch.training.run import Run

__all__ = ["Planned", "keep", "plan_runs", "stand_in_for"]


@dataclass(frozen=True)
class Planned:
    """One run of a grid."""

    trial: Trial
    recipe: str
    config: Config
    folder: Path

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def finished(self) -> bool:
        return Run(self.folder).finished

    @property
    def under_way(self) -> bool:
        return self.begun and not self.finished

    @property
    def begun(self) -> bool:
        return (self.folder / "config.json").is_file()

    def steps_done(self) -> int:
        """Steps that are finished or saved in a checkpoint."""
        return self.config.steps if self.finished else newest_step(self.folder / "checkpoint")

    def run(self) -> Run:
        return Run.open(self.folder)


def stand_in_for(
    data: str | None, studies: Sequence[Study], recipe: str | None = None
) -> tuple[str | None, tuple[Study, ...]]:
    """The ``recipe``, or the one for ``data`` with the fewest labels, and the studies for which it can stand in.

    The recipe is None if it is the studies' own.
    """
    movable = tuple(study for study in studies if study.movable)
    if recipe is not None:
        recipes.get(recipe)
        if data is not None:
            raise UserError(f"data is {data!r} and recipe {recipe!r}: give one of them, a recipe has its own data")
        if not movable:
            raise UserError(f"{studies[0].name} is about its own recipes, not {recipe}: leave --recipe out")
        for study in movable:
            _must_take(study, recipe)
        return None if recipe == ANALYSED else recipe, movable
    if data is None:
        return None, tuple(studies)
    built = {name: recipe.build() for name, recipe in recipes.items()}
    found = {name: config.labels or 0 for name, config in built.items() if config.data == data}
    if not found:
        known = dict.fromkeys(config.data for config in built.values())
        raise UserError(f"data is {data!r}, which no recipe is for: choose from {', '.join(known)}")
    if all(built[trial.recipe].data == data for study in studies for trial in study.trials()):
        return None, tuple(studies)
    if not movable:
        raise UserError(f"{studies[0].name} is about its own data and cannot be trained on {data}: leave --data out")
    fewest = min(found, key=lambda name: found[name])
    return None if fewest == ANALYSED else fewest, movable


def _must_take(study: Study, recipe: str) -> None:
    """Raise UserError if a recipe has settings of its own that do not go with those of the study."""
    for trial in study.trials():
        try:
            trial.config(0, recipe).check()
        except UserError as error:
            raise UserError(
                f"recipe {recipe!r} cannot stand in for {study.name}, where {trial.name} has other settings ({error}): "
                "choose another recipe, such as cifar10-40"
            ) from error


def plan_runs(
    studies: Iterable[Study],
    seeds: Sequence[int],
    budget: Budget,
    out: Path,
    *,
    stand_in: str | None = None,
    steps_in_time: dict[str, int] | None = None,
    without: Collection[str] = (),
    **where: object,
) -> list[Planned]:
    """All runs of the studies, each once, ordered by seed, so that a grid stopped early has all rows for some seeds.

    ``steps_in_time`` has the steps that fit into a budget of minutes, by recipe; ``without`` are recipes that cannot be
    trained. ``where`` are config fields that determine where to train, such as the device.
    """
    planned: dict[str, Planned] = {}
    for seed in seeds:
        for study in studies:
            for trial in study.trials():
                recipe = stand_in or trial.recipe
                if recipe in without:
                    continue
                config = budget.apply(trial, seed, stand_in, (steps_in_time or {}).get(recipe))
                name = f"{recipe}-{trial.name}-{config.steps}-seed{seed}"
                planned.setdefault(
                    name, Planned(trial, recipe, config.replace(name=name, **where), out / "runs" / name)
                )
    return list(planned.values())


def keep(planned: Sequence[Planned], only: Sequence[str]) -> list[Planned]:
    """The runs whose name contains one of the words in ``only``, each of which must be in one; all if it is empty."""
    unknown = [word or "''" for word in only if not word or not any(word in run.name for run in planned)]
    if unknown:
        names = sorted({run.name.rpartition("-seed")[0] for run in planned})
        raise UserError(f"no run is called {' or '.join(unknown)}: there are {', '.join(names)}")
    return [run for run in planned if not only or any(word in run.name for word in only)]
