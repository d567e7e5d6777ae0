"""Compare runs: settings that differ, accuracies, and paired tests on the same test items."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from normatch.config import Config, flat, to_json
from normatch.data import sources
from normatch.errors import UserError
from normatch.evaluate.answers import Answers, read_answers
from normatch.methods.base import Settings
from normatch.nets.model import read_spec
from normatch.report.findings import Curve, curves_of
from normatch.significance import mcnemar, wilson_interval
from normatch.text import aligned, counted
from normatch.training.predictions import PREDICTIONS
from normatch.training.run import Run

__all__ = ["ComparedRun", "Comparison", "Match", "compare", "describe", "shown"]


@dataclass(frozen=True)
class ComparedRun:
    """One run of a comparison: its name in it, and its result."""

    name: str
    path: str
    method: str
    labels: int
    """Number of labelled items that it was trained on."""
    accuracy: float | None
    interval: tuple[float, float] | None
    evaluated_on: str | None
    n: int
    steps: int
    seconds: float
    hardware: str
    accuracies: Curve
    """Held-out accuracy over the steps."""


@dataclass(frozen=True)
class Match:
    """Two runs on the same ``n`` test items; only the first got ``won`` items right, only the second ``lost``."""

    first: str
    second: str
    n: int
    won: int
    lost: int
    p: float | None
    why_not: str | None
    """Why the two cannot be compared item by item; None if they can."""


@dataclass(frozen=True)
class Comparison:
    """The content of a comparison, JSON-ready."""

    runs: tuple[ComparedRun, ...]
    same_data: bool
    """Whether all were trained on the same data, so that their accuracies are comparable."""
    settings: dict[str, list[Any]]
    """Config fields that differ, with the value of each run: None if its method has no such setting."""
    matches: tuple[Match, ...]


def compare(paths: Sequence[Path]) -> Comparison:
    """Compare finished runs from their folders alone; no data is read."""
    if len(paths) < 2:
        raise UserError(f"{counted(len(paths), 'run')} given: compare needs at least two")
    runs = [Run.open(path) for path in paths]
    given: set[Path] = set()
    for path in paths:
        if path.resolve() in given:
            raise UserError(f"{path} is given twice: name each run once")
        given.add(path.resolve())
    names = _names(paths)
    rows = tuple(_compared_run(name, run) for name, run in zip(names, runs, strict=True))
    places = [_resolved(run.config) for run in runs]
    configs = [flat(to_json(config)) for config in places]
    fields = dict.fromkeys(field for config in configs for field in config if field != "name")
    defaults = [flat(to_json(config.replace(settings=Settings()))) for config in places]
    differing = [field for field in fields if _differs(field, configs, defaults)]
    answers = [read_answers(run, read_spec(run.path / "model.json").classes) for run in runs]
    files = [run.files.get("test") for run in runs]
    digests = [run.digest_of_test for run in runs]
    sides = [_Side(*side) for side in zip(names, runs, places, answers, files, digests, strict=True)]
    return Comparison(
        runs=rows,
        same_data=len({config.data for config in places}) == 1,
        settings={field: [config.get(field) for config in configs] for field in differing},
        matches=tuple(_match(*pair) for pair in combinations(sides, 2)),
    )


def _differs(field: str, configs: list[dict[str, Any]], defaults: list[dict[str, Any]]) -> bool:
    """Whether runs that have a setting have different ones, or only some have it and not all of these its default."""
    having = [(config, default) for config, default in zip(configs, defaults, strict=True) if field in config]
    if len({str(config[field]) for config, _ in having}) > 1:
        return True
    return len(having) < len(configs) and any(config[field] != default.get(field) for config, default in having)


def describe(comparison: Comparison) -> str:
    """The comparison as text for a terminal."""
    lines = aligned(
        [
            ["run", "method", "labels", "accuracy", "95% interval", "items", "steps", "time"],
            *(
                [
                    row.name,
                    row.method,
                    str(row.labels),
                    "–" if row.accuracy is None else f"{row.accuracy:.2%}",
                    "–" if row.interval is None else f"{row.interval[0]:.2%} to {row.interval[1]:.2%}",
                    f"{row.n} {row.evaluated_on}" if row.n else "–",
                    str(row.steps),
                    f"{row.seconds:.0f} s",
                ]
                for row in comparison.runs
            ),
        ]
    )
    if comparison.settings:
        lines += ["", "settings that differ"]
        lines += aligned(
            [
                ["", *(row.name for row in comparison.runs)],
                *([field, *map(shown, values)] for field, values in comparison.settings.items()),
            ]
        )
    lines += ["", "on the same test items (McNemar's exact test; each pair by itself)"]
    return "\n".join([*lines, *(f"  {verdict(match)}" for match in comparison.matches)])


def verdict(match: Match) -> str:
    """The result of the paired test as a sentence."""
    if match.p is None:
        return f"{match.first} and {match.second}: not comparable, {match.why_not}"
    said = "they differ" if match.p < 0.05 else "no clear difference"
    return (
        f"{match.first} and {match.second}: {match.won} of {match.n} items right only in the first, "
        f"{match.lost} only in the second, p = {match.p:.2g}: {said}"
    )


def shown(value: Any) -> str:
    return "–" if value is None else str(value)


def _names(paths: Sequence[Path]) -> list[str]:
    """The shortest trailing parts of the paths that distinguish them."""
    parts = [path.resolve().parts for path in paths]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    raise AssertionError("resolved paths differ")


def _compared_run(name: str, run: Run) -> ComparedRun:
    result = run.result
    accuracy, n = result["accuracy"], result["n"]
    curve = curves_of(list(run.metrics())).get(f"{result['evaluated_on']}/accuracy", [])
    return ComparedRun(
        name=name,
        path=str(run.path),
        method=result["method"],
        labels=result["labels"],
        accuracy=accuracy,
        interval=wilson_interval(round(accuracy * n), n) if n else None,
        evaluated_on=result["evaluated_on"],
        n=n,
        steps=result["steps"],
        seconds=result["seconds"],
        hardware=result["hardware"],
        accuracies=curve,
    )


def _resolved(config: Config) -> Config:
    """The config with its own data under one name: as given, a place may be relative, or a link to another."""

    def resolved(place: str | Path) -> str:
        return os.path.realpath(Path(place).expanduser())

    data = config.data if config.data in sources else resolved(config.data)
    return config.replace(data=data, unlabelled=config.unlabelled and Path(resolved(config.unlabelled)))


class _Side(NamedTuple):
    """One of two runs that are compared."""

    name: str
    run: Run
    config: Config
    """With its places resolved."""
    answers: Answers | None
    files: list[str] | None
    digest: str | None


def _match(first: _Side, second: _Side) -> Match:
    why_not = _why_not_comparable(first, second)
    a, b = first.answers, second.answers
    if why_not is not None or a is None or b is None:
        return Match(first.name, second.name, 0, 0, 0, None, why_not)
    paired = mcnemar(a.correct, b.correct)
    return Match(first.name, second.name, paired.n, paired.won, paired.lost, paired.p, None)


def _why_not_comparable(first: _Side, second: _Side) -> str | None:
    """Why two runs do not have the same test items (same data, same draw, same classes); None if they have."""
    a, b = first.config, second.config
    if first.answers is None or second.answers is None:
        without = first if first.answers is None else second
        lost = without.run.result["evaluated_on"] == "test"
        return f"{without.name} has no {PREDICTIONS if lost else 'labelled test items'}"
    if a.data != b.data:
        return f"their data differs: {a.data} and {b.data}"
    if a.test_share != b.test_share or (a.test_share and a.seed != b.seed):
        return "their test items were drawn by different seeds or shares"
    # A label more draws other pictures, of which there may be as many of each class.
    known = ((first.files, second.files), (first.digest, second.digest))
    others = any(None not in pair and pair[0] != pair[1] for pair in known)
    one, other = first.answers, second.answers
    same = np.array_equal(one.items, other.items) and np.array_equal(one.labels, other.labels)
    if not others and same:
        return None
    return "their test items differ: the data was changed between the two (labels of --labelled leave them as they are)"
