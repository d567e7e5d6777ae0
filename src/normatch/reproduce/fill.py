"""Results put into the places of a table that they answer."""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from scipy.special import stdtrit

from normatch.reproduce.budget import in_steps
from normatch.reproduce.paper import Cell, Measure, Row, Study, Trial
from normatch.reproduce.results import Result, question

__all__ = ["Answer", "Filled", "Gain", "answers", "value"]


@dataclass(frozen=True)
class Answer:
    """What our runs say to one cell at one number of steps: each seed's result."""

    steps: int
    whole: int
    """Steps of the paper's schedule, or of the stand-in's own."""
    results: tuple[Result, ...]

    def values(self, measure: Measure = "accuracy") -> list[float]:
        """In percent or millions, of the runs that came to an end."""
        found = (value(result, measure) for result in self.results)
        return [number for number in found if number is not None]

    @property
    def failed(self) -> int:
        return sum(result.failed is not None for result in self.results)


@dataclass(frozen=True)
class Gain:
    """A row over the first one, label seed by label seed, at one number of steps."""

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
        """Where the mean over all seeds would lie, with a confidence of 95 % by Student's t."""
        if self.spread is None:
            return None
        n = len(self.each)
        half = float(stdtrit(n - 1, 0.975)) * self.spread / math.sqrt(n)
        return self.mean - half, self.mean + half


def value(result: Result, measure: Measure) -> float | None:
    """A number of a result in the paper's units."""
    if measure in ("weights", "products"):
        count = result.weights if measure == "weights" else result.products
        return None if count is None else count / 1e6
    share = result.accuracy if measure == "accuracy" else result.confident
    return None if share is None or result.failed else 100 * share


def answers(trial: Trial | None, results: Sequence[Result], stand_in: str | None = None) -> list[Answer]:
    """What the results say to a trial: the longest runs first."""
    if trial is None:
        return []
    lengths = {result.config.steps for result in results}
    # Seeds are no part of a question, so one of them stands for all.
    asked = {steps: question(in_steps(trial, 0, steps, stand_in)) for steps in lengths}
    found: dict[int, list[Result]] = {}
    for result in results:
        if asked[result.config.steps] == result.question:
            found.setdefault(result.config.steps, []).append(result)
    whole = trial.config(0, stand_in).steps
    return [
        Answer(steps, whole, tuple(sorted(found[steps], key=lambda result: result.seed)))
        for steps in sorted(found, reverse=True)
    ]


@dataclass(frozen=True)
class Filled:
    """A study and the results that may answer it.

    With ``stand_in`` the runs of that recipe, whose schedule is shorter, answer in the place of the study's own.
    """

    study: Study
    results: Sequence[Result]
    stand_in: str | None = None

    @property
    def rows(self) -> list[Row]:
        """The rows of the study; with a stand-in, none that asks what an earlier one has asked."""
        if self.stand_in is None:
            return list(self.study.rows)
        different: dict[str, Row] = {}
        for row in self.study.rows:
            asked = [cell.trial and question(cell.trial.config(0, self.stand_in)) for cell in row.cells]
            different.setdefault(repr(asked), row)
        return list(different.values())

    def answers(self, trial: Trial | None) -> list[Answer]:
        """What the results say to a trial: the longest runs first."""
        return answers(trial, self.results, self.stand_in)

    def cells(self) -> list[dict[str, Any]]:
        """Every cell as JSON values: the paper's numbers, and ours at each number of steps."""
        return [
            {
                "row": row.name,
                "column": column,
                "paper": {name: {"value": score.value, "spread": score.spread} for name, score in cell.paper.items()},
                "ours": [self._in_numbers(answer) for answer in self.answers(cell.trial)],
            }
            for row in self.rows
            for column, cell in zip(self.study.columns, row.cells, strict=True)
        ]

    def gains(self) -> list[Gain]:
        """Every row of a study of one column over its first, where both have runs of the same seeds and steps."""
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
        ground = {answer.steps: answer for answer in self.answers(base.trial)}
        for answer in self.answers(cell.trial):
            if answer.steps not in ground:
                continue
            theirs = {result.seed: value(result, "accuracy") for result in ground[answer.steps].results}
            ours = {result.seed: value(result, "accuracy") for result in answer.results}
            each = [
                reached - start
                for seed, reached in ours.items()
                if reached is not None and (start := theirs.get(seed)) is not None
            ]
            if each:
                yield Gain(row.name, _paper_gain(base, cell), answer.steps, tuple(each))


def _paper_gain(base: Cell, cell: Cell) -> float | None:
    if "accuracy" not in base.paper or "accuracy" not in cell.paper:
        return None
    return cell.paper["accuracy"].value - base.paper["accuracy"].value
