"""Results as JSON files, one a run, and what they say: the cells of a table, gains seed by seed, verdicts."""

import json
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from normatch.config import Config, to_json
from normatch.device import stamp
from normatch.errors import UserError, reason
from normatch.files import read_json, replacing
from normatch.reproduce.paper import EVALUATIONS, Measure, Row, Study, Trial
from normatch.significance import mean_interval
from normatch.training.diagnostics import NOT_FINITE
from normatch.training.run import Run
from normatch.training.runtime import Runtime
from normatch.training.train import REPETITION

__all__ = ["Result", "Table", "Verdict", "diverged", "read_result", "setting", "verdict", "write_result"]

MOST_POINTS = 300
"""Most points of a stored curve."""

Verdict = Literal["supported", "contradicted", "open", "not run"]


@dataclass(frozen=True)
class Result:
    """The content of a result file. Shares are from 0 to 1."""

    path: Path
    config: Config
    failed: str | None
    """Why the run diverged, which is a result too; None if it did not."""
    accuracy: float | None
    """Accuracy of the final averaged weights."""
    seconds: float
    hardware: str
    torch: str
    date: str
    curves: dict[str, list[tuple[int, float]]]

    @cached_property
    def setting(self) -> str:
        return setting(self.config)

    def value(self, measure: Measure) -> float | None:
        """A measure, shares in percent; None if there is none."""
        if measure == "steps/s":
            return None if self.failed or not self.seconds else self.config.steps / self.seconds
        share = self.accuracy if measure == "accuracy" else self.last("pseudo/confident")
        return None if share is None or self.failed else 100 * share

    def last(self, curve: str) -> float | None:
        """The last value of a curve; None if there is no such curve."""
        return self.curves[curve][-1][1] if self.curves.get(curve) else None


def setting(config: Config) -> str:
    """The config without the fields that may differ in repetitions of it: equal for results of the same cell."""
    return repr({name: value for name, value in to_json(config).items() if name not in REPETITION})


def diverged(run: Run) -> str | None:
    """At which step and how a run diverged; None if it did not."""
    broken = next((warning for warning in run.warnings if warning["name"] == NOT_FINITE), None)
    return None if run.finished or broken is None else f"step {broken['step']}: {broken['message']}"


def write_result(run: Run, path: Path, whole: int) -> None:
    """Write the result of a finished or diverged run; ``whole`` is the number of steps of its whole schedule."""
    config, curves = run.config, _curves(run)
    ended = run.result if run.finished else _result_of_diverged(config, curves)
    seen = [value for _, value in curves.get(f"{ended['evaluated_on']}/accuracy", [])]
    split = run.split
    kept = ("evaluated_on", "n", "method", "seed", "labels", "steps", "seconds", "hardware", "versions", "date")
    fields = {
        "name": config.name,
        # The location of the files is not part of the result.
        "config": to_json(config) | {"data_root": None},
        **{name: ended[name] for name in kept},
        "schedule": {"steps": config.steps, "whole": whole, "share": config.steps / whole},
        "failed": diverged(run),
        "accuracy": {
            "last weights": ended["accuracy"],
            f"mean of the last {EVALUATIONS} evaluations": statistics.mean(seen[-EVALUATIONS:]) if seen else None,
            "evaluations in that mean": len(seen[-EVALUATIONS:]),
            "best evaluation (chosen by the test set)": max(seen, default=None),
        },
        "labelled": split.labelled.tolist(),
        "unlabelled": len(split.unlabelled),
        "warnings": [f"{warning['name']} at step {warning['step']}" for warning in run.warnings],
        # At most a few hundred points of a curve, with five significant digits.
        "curves": {name: [(step, float(f"{v:.5g}")) for step, v in _thinned(c)] for name, c in curves.items()},
    }
    # One line a field; json's indentation would give each point of a curve its own line.
    lines = (f"  {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in fields.items())
    with replacing(path) as part:
        part.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def read_result(path: Path) -> Result:
    """The result in a file; UserError if it holds none."""
    try:
        found = read_json(path)
        accuracy = found["accuracy"]["last weights"]
        if accuracy is not None and not 0 <= accuracy <= 1:
            raise ValueError(f"accuracy is {accuracy!r} instead of a share from 0 to 1")
        return Result(
            path=path,
            config=Config.from_json(found["config"]),
            failed=found["failed"],
            accuracy=accuracy,
            seconds=found["seconds"],
            hardware=found["hardware"],
            torch=found["versions"]["torch"],
            date=found["date"],
            curves={name: [(int(step), float(value)) for step, value in c] for name, c in found["curves"].items()},
        )
    except (AttributeError, OSError, KeyError, TypeError, ValueError, UserError) as error:
        raise UserError(f"{path} is no result of a run ({reason(error)}): move it elsewhere") from error


def _curves(run: Run) -> dict[str, list[tuple[int, float]]]:
    """Every scalar metric of the run over the steps."""
    curves: dict[str, list[tuple[int, float]]] = {}
    for record in run.metrics():
        for name, value in record.items():
            if isinstance(value, float) and math.isfinite(value):
                curves.setdefault(name, []).append((record["step"], value))
    return curves


def _result_of_diverged(config: Config, curves: dict[str, list[tuple[int, float]]]) -> dict[str, Any]:
    """The fields of ``result.json`` for a diverged run, which has no such file."""
    steps, seconds = (curves.get("seconds") or [(0, 0.0)])[-1]
    about = {"method": config.method, "seed": config.seed, "labels": config.labels, "steps": steps, "seconds": seconds}
    evaluated = {"accuracy": None, "evaluated_on": "test" if "test/accuracy" in curves else None, "n": 0}
    return about | evaluated | {"hardware": Runtime.of(config).describe(), **stamp()}


def _thinned(curve: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """An even selection of the points, with the last."""
    size = math.ceil(len(curve) / MOST_POINTS)
    return curve[(len(curve) - 1) % size :: size]


@dataclass(frozen=True)
class Runs:
    """The results of one cell at one number of steps, sorted by seed."""

    steps: int
    whole: int
    """Steps of the whole schedule."""
    results: tuple[Result, ...]

    def __post_init__(self) -> None:
        by_seed = {result.config.seed: result for result in self.results}
        for result in self.results:
            if (other := by_seed[result.config.seed]) is not result:
                raise UserError(
                    f"{result.path} and {other.path.name} are results of the same run and seed: move one elsewhere"
                )

    @property
    def complete(self) -> bool:
        """Whether all runs had the whole schedule and none diverged: only then are they compared with the paper."""
        return self.steps == self.whole and not any(result.failed for result in self.results)

    def by_seed(self, measure: Measure = "accuracy") -> dict[int, float]:
        """The values of the runs that did not diverge, in percent."""
        found = {result.config.seed: result.value(measure) for result in self.results}
        return {seed: value for seed, value in found.items() if value is not None}

    def values(self, measure: Measure = "accuracy") -> list[float]:
        return list(self.by_seed(measure).values())


@dataclass(frozen=True)
class Gain:
    """Differences in accuracy between two rows, one per label seed that both have, at one number of steps."""

    row: str
    column: str
    paper: float | None
    steps: int
    whole: int
    complete: bool
    each: tuple[float, ...]

    @property
    def mean(self) -> float:
        return statistics.mean(self.each)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % confidence interval of the mean difference over all seeds, by Student's t."""
        return mean_interval(self.each) if len(self.each) > 1 else None


@dataclass(frozen=True)
class Table:
    """A study, filled with those of the results whose config is the one that a cell asks for."""

    study: Study
    results: Sequence[Result]

    def runs_of(self, trial: Trial) -> list[Runs]:
        """Our runs of a trial by their number of steps, the longest first."""
        lengths = sorted({result.config.steps for result in self.results}, reverse=True)
        whole = trial.config(0).steps
        found = []
        for steps in lengths:
            asked = setting(trial.config(0, steps))
            same = [result for result in self.results if result.config.steps == steps and result.setting == asked]
            if same:
                found.append(Runs(steps, whole, tuple(sorted(same, key=lambda result: result.config.seed))))
        return found

    def longest(self) -> Runs | None:
        """Those of most steps; of the first row in a tie."""
        found = [runs for trial in self.study.trials() for runs in self.runs_of(trial)[:1]]
        return max(found, key=lambda runs: runs.steps, default=None)

    def gains(self) -> list[Gain]:
        """The gains of all rows over the first, column by column."""
        first, *others = self.study.rows
        return [found for row in others for j in range(len(row.cells)) for found in self.paired(row, first, j)]

    def paired(self, row: Row, over: Row, column: int = 0) -> Iterator[Gain]:
        """The gain of a row over another in a column, for each number of steps that both have, the longest first."""
        scores = [one.cells[column].paper.get("accuracy") for one in (row, over)]
        known = [score.value for score in scores if score is not None]
        paper = known[0] - known[1] if len(known) == 2 else None
        bases = {runs.steps: runs for runs in self.runs_of(over.cells[column].trial)}
        for runs in self.runs_of(row.cells[column].trial):
            base = bases.get(runs.steps)
            start = base.by_seed() if base else {}
            each = tuple(value - start[seed] for seed, value in runs.by_seed().items() if seed in start)
            if base and each:
                complete = runs.complete and base.complete
                yield Gain(row.name, self.study.columns[column], paper, runs.steps, runs.whole, complete, each)

    def to_json(self) -> dict[str, Any]:
        """All cells, with the paper's numbers, and the gains."""

        def ours(runs: Runs) -> dict[str, Any]:
            results, measures = runs.results, self.study.measures
            return {
                "steps": runs.steps,
                "whole": runs.whole,
                "seeds": [result.config.seed for result in results],
                "failed": [result.failed for result in results],
                "files": [result.path.name for result in results],
                **{measure: [result.value(measure) for result in results] for measure in measures},
            }

        cells = [
            {
                "row": row.name,
                "column": column,
                "paper": {name: asdict(score) for name, score in cell.paper.items()},
                "ours": list(map(ours, self.runs_of(cell.trial))),
            }
            for row in self.study.rows
            for column, cell in zip(self.study.columns, row.cells, strict=True)
        ]
        gains = [asdict(gain) | {"mean": gain.mean, "interval": gain.interval} for gain in self.gains()]
        return {"cells": cells, "gains": gains}


def verdict(each: Sequence[float], claimed: float, *, complete: bool) -> Verdict:
    """What differences, one a label seed, say of a claimed gain (or loss, if negative).

    Supported if the 95 % confidence interval excludes 0 in the claim's direction and the mean is at least half of the
    claim; contradicted if the interval ends before half of it; else open, as are runs that are not complete.
    """
    if not each:
        return "not run"
    if not complete or len(each) < 2:
        return "open"
    sign = math.copysign(1.0, claimed)
    low, high = mean_interval([sign * value for value in each])
    if low > 0 and sign * statistics.mean(each) >= abs(claimed) / 2:
        return "supported"
    return "contradicted" if high < abs(claimed) / 2 else "open"
