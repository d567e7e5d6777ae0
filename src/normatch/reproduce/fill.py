"""Fill the cells of a table with the results that answer them."""

import itertools
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from normatch.errors import UserError
from normatch.reproduce.budget import in_steps
from normatch.reproduce.paper import Cell, Measure, Row, Study, Trial
from normatch.reproduce.results import Result, question
from normatch.significance import mean_interval

__all__ = ["Answer", "Filled", "Gain", "answers", "value"]


@dataclass(frozen=True)
class Answer:
    """Our results for one cell at one number of steps, one per seed."""

    steps: int
    whole: int
    """Steps of the paper's schedule, or of the stand-in's."""
    results: tuple[Result, ...]

    def values(self, measure: Measure = "accuracy") -> list[float]:
        """The values of the successful runs, in percent or millions."""
        found = (value(result, measure) for result in self.results)
        return [number for number in found if number is not None]

    @property
    def failed(self) -> int:
        return sum(result.failed is not None for result in self.results)


@dataclass(frozen=True)
class Gain:
    """Differences in accuracy between a row and the first row, one per label seed, at one number of steps."""

    row: str
    paper: float | None
    steps: int
    each: tuple[float, ...]

    @property
    def mean(self) -> float:
        return statistics.mean(self.each)

    @property
    def spread(self) -> float | None:
        """The standard deviation of the seeds' differences."""
        return statistics.stdev(self.each) if len(self.each) > 1 else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % confidence interval of the mean difference over all seeds, by Student's t."""
        return mean_interval(self.each) if len(self.each) > 1 else None

    def to_json(self) -> dict[str, Any]:
        """The gain, JSON-ready."""
        return asdict(self) | {"mean": self.mean, "spread": self.spread, "interval": self.interval}


def value(result: Result, measure: Measure) -> float | None:
    """A measure of a result in the paper's units; None if there is none."""
    if measure in ("weights", "products"):
        count = result.weights if measure == "weights" else result.products
        return None if count is None else count / 1e6
    share = result.accuracy if measure == "accuracy" else result.confident
    return None if share is None or result.failed else 100 * share


def answers(trial: Trial | None, results: Sequence[Result], stand_in: str | None = None) -> list[Answer]:
    """The answers to a trial among the results, the longest runs first."""
    if trial is None:
        return []
    lengths = {result.config.steps for result in results}
    # A question does not depend on the seed, so any seed will do.
    asked = {steps: question(in_steps(trial, 0, steps, stand_in)) for steps in lengths}
    found: dict[int, list[Result]] = {}
    for result in results:
        if asked[result.config.steps] == result.question:
            found.setdefault(result.config.steps, []).append(result)
    whole = trial.config(0, stand_in).steps
    return [Answer(steps, whole, _one_a_seed(found[steps])) for steps in sorted(found, reverse=True)]


def _one_a_seed(results: Sequence[Result]) -> tuple[Result, ...]:
    """The results sorted by seed; UserError if two have the same, which would count as two."""
    ordered = tuple(sorted(results, key=lambda result: result.seed))
    for first, second in itertools.pairwise(ordered):
        if first.seed == second.seed:
            raise UserError(
                f"{first.path} and {second.path.name} are results of the same run and seed {first.seed}: move one of "
                "them elsewhere"
            )
    return ordered


@dataclass(frozen=True)
class Filled:
    """A study and the results that may answer it.

    With ``stand_in``, runs of that recipe, whose schedule is shorter, replace those of the study's recipe.
    """

    study: Study
    results: Sequence[Result]
    stand_in: str | None = None

    @property
    def rows(self) -> list[Row]:
        """The rows of the study: of those that are trained elsewhere, the ones with results; with a stand-in, without
        rows whose configs equal those of an earlier row."""
        rows = [row for row in self.study.rows if not row.elsewhere or any(self.answers(c.trial) for c in row.cells)]
        if self.stand_in is None:
            return rows
        different: dict[str, Row] = {}
        for row in rows:
            asked = [cell.trial and question(cell.trial.config(0, self.stand_in)) for cell in row.cells]
            different.setdefault(repr(asked), row)
        return list(different.values())

    @property
    def same_task(self) -> bool:
        """Whether its runs have the study's data and labels, so that gains compare with the paper's."""
        trial = self.study.trials()[0]
        here, there = trial.config(0, self.stand_in), trial.config(0)
        return (here.data, here.labels) == (there.data, there.labels)

    def answers(self, trial: Trial | None) -> list[Answer]:
        """The answers to a trial, the longest runs first."""
        return answers(trial, self.results, self.stand_in)

    def cells(self) -> list[dict[str, Any]]:
        """All cells, JSON-ready: the paper's numbers, unless a recipe stands in, and ours at each number of steps."""
        return [
            {
                "row": row.name,
                "column": column,
                "paper": {} if self.stand_in else {name: asdict(score) for name, score in cell.paper.items()},
                "ours": [self._in_numbers(answer) for answer in self.answers(cell.trial)],
            }
            for row in self.rows
            for column, cell in zip(self.study.columns, row.cells, strict=True)
        ]

    def gains(self) -> list[Gain]:
        """The gains of all rows over the first, for a study of one column, from runs with equal seeds and steps."""
        first, *others = self.rows
        return [gain for row in others for gain in self._gains(first, row)] if len(first.cells) == 1 else []

    def _in_numbers(self, answer: Answer) -> dict[str, Any]:
        return {
            "steps": answer.steps,
            "whole": answer.whole,
            "failed": answer.failed,
            "seeds": [result.seed for result in answer.results],
            "files": [result.path.name for result in answer.results],
            **{measure: [value(result, measure) for result in answer.results] for measure in self.study.measures},
        }

    def _gains(self, first: Row, row: Row) -> Iterator[Gain]:
        (base,), (cell,) = first.cells, row.cells
        base_answers = {answer.steps: answer for answer in self.answers(base.trial)}
        for answer in self.answers(cell.trial):
            if answer.steps not in base_answers:
                continue
            base_values = {result.seed: value(result, "accuracy") for result in base_answers[answer.steps].results}
            row_values = {result.seed: value(result, "accuracy") for result in answer.results}
            each = [
                reached - start
                for seed, reached in row_values.items()
                if reached is not None and (start := base_values.get(seed)) is not None
            ]
            if each:
                comparable = self.same_task and not (first.borrowed or row.borrowed)
                paper = _paper_gain(base, cell) if comparable else None
                yield Gain(row.name, paper, answer.steps, tuple(each))


def _paper_gain(base: Cell, cell: Cell) -> float | None:
    if "accuracy" not in base.paper or "accuracy" not in cell.paper:
        return None
    return cell.paper["accuracy"].value - base.paper["accuracy"].value
