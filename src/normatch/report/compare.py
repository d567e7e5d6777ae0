"""Compare finished runs from their folders: runs that differ only by seed are repetitions of one config."""

import os
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from normatch.config import Config, flat, to_json
from normatch.data import sources
from normatch.errors import UserError
from normatch.evaluate.held_out import read_held_out
from normatch.files import must_be_free
from normatch.methods.base import Settings
from normatch.nets.model import read_spec
from normatch.report.charts import COLORS, IntervalRow, Series
from normatch.report.findings import curves_of
from normatch.report.page import render, share, write_page
from normatch.significance import mcnemar, mean_interval, wilson_interval
from normatch.text import aligned, counted
from normatch.training.predictions import HeldOutPredictions
from normatch.training.run import Run
from normatch.training.train import REPETITION

__all__ = ["Comparison", "Difference", "Group", "RunRow", "compare", "describe", "tables", "write_comparison"]

Interval = tuple[float, float]

MOST_PAIRED = 6
"""Most configs of which all pairs are compared; of more, each is compared with the best."""


@dataclass(frozen=True)
class RunRow:
    """One run: its name in the comparison, and its result."""

    name: str
    path: str
    seed: int
    accuracy: float | None
    interval: Interval | None
    seconds: float
    hardware: str


@dataclass(frozen=True)
class Group:
    """Runs of one config; the accuracy is the mean over them."""

    name: str
    runs: list[RunRow]
    method: str
    labels: int
    """Number of labelled samples that were trained on."""
    accuracy: float | None
    interval: Interval | None
    """95% confidence interval: over seeds (Student's t), or of one run over its test samples (Wilson)."""
    evaluated_on: str | None
    n: int
    steps: int


@dataclass(frozen=True)
class Difference:
    """The accuracy of the first less that of the second, and the probability ``p`` of one at least this large if both
    were equally good; these are None if they cannot be compared."""

    first: str
    second: str
    test: str
    """paired t: runs of the same seeds and test samples; McNemar: one run of each on the same test samples; Welch's t:
    other seeds or test samples; or why there is none."""
    difference: float | None = None
    interval: Interval | None = None
    p: float | None = None


@dataclass(frozen=True)
class Comparison:
    """The content of a comparison, JSON-ready."""

    groups: list[Group]
    same_data: bool
    """Whether all were trained on the same data, so that their accuracies are comparable."""
    settings: dict[str, list[Any]]
    """Config fields that differ, with the value of each group: None if its method has no such setting."""
    differences: list[Difference]


class _Member:
    """A run that is compared. What not every comparison needs is read when it is asked for."""

    def __init__(self, name: str, path: Path) -> None:
        self.name, self.run = name, Run.open(path)
        self.config, self.result = _resolved(self.run.config), self.run.result
        fields = flat(to_json(self.config))
        self.settings = {field: value for field, value in fields.items() if field not in REPETITION}

    @property
    def accuracy(self) -> float:
        return float(self.result["accuracy"])

    @cached_property
    def test(self) -> tuple[object, ...] | None:
        """Equal for runs with the same test samples; None without any."""
        if self.result["evaluated_on"] != "test":
            return None
        config, files = self.config, self.run.files.get("test")
        drawn = (config.test_share, config.seed) if config.test_share else ()
        return (config.data, drawn, tuple(files) if files else self.run.digest, self.result["n"])

    @cached_property
    def held_out(self) -> HeldOutPredictions | None:
        return read_held_out(self.run, read_spec(self.run.path / "model.json").classes)

    def row(self) -> RunRow:
        result, n = self.result, self.result["n"]
        interval = wilson_interval(round(self.accuracy * n), n) if n else None
        reached = (result["accuracy"], interval, result["seconds"], result["hardware"])
        return RunRow(self.name, str(self.run.path), self.config.seed, *reached)


def _resolved(config: Config) -> Config:
    """The config with its own data under one name: as given, a place may be relative, or a link to another."""

    def resolved(place: str | Path) -> str:
        return os.path.realpath(Path(place).expanduser())

    data = config.data if config.data in sources else resolved(config.data)
    return config.replace(data=data, unlabelled=config.unlabelled and Path(resolved(config.unlabelled)))


def compare(paths: Sequence[Path]) -> Comparison:
    """Compare finished runs; neither data nor weights are read."""
    if len(paths) < 2:
        raise UserError(f"{counted(len(paths), 'run')} given: compare needs at least two")
    places = [path.resolve() for path in paths]
    for i, path in enumerate(paths):
        if places[i] in places[:i]:
            raise UserError(f"{path} is given twice: name each run once")
    members = [_Member(name, path) for name, path in zip(_names(places), paths, strict=True)]
    by_config: dict[str, list[_Member]] = {}
    for member in members:
        by_config.setdefault(repr(member.settings), []).append(member)
    teams = list(by_config.values())
    groups = [_group(name, team) for name, team in zip(_group_names(teams), teams, strict=True)]
    return Comparison(
        groups=groups,
        same_data=len({member.config.data for member in members}) == 1,
        settings=_differing([team[0] for team in teams]),
        differences=[_difference(groups[i].name, teams[i], groups[j].name, teams[j]) for i, j in _pairs(groups)],
    )


def _names(places: Sequence[Path]) -> list[str]:
    """The shortest trailing parts of the paths that distinguish them."""
    for depth in range(1, max(len(place.parts) for place in places) + 1):
        names = ["/".join(place.parts[-depth:]) for place in places]
        if len(set(names)) == len(names):
            break
    return names


def _group_names(teams: list[list[_Member]]) -> list[str]:
    """The words with which the names of a config's runs begin, if these distinguish it, or else its first run."""
    alike = [os.path.commonprefix([member.name for member in team]) for team in teams]  # noqa: RUF071, not of paths
    begun = [re.sub(r"[^-_. /]*$", "", name).rstrip("-_. /") for name in alike]
    names = [name if name and begun.count(name) == 1 else team[0].name for name, team in zip(begun, teams, strict=True)]
    return [
        team[0].name if len(team) == 1 else f"{name} ({len(team)} runs)"
        for name, team in zip(names, teams, strict=True)
    ]


def _group(name: str, team: list[_Member]) -> Group:
    rows, result = [member.row() for member in team], team[0].result
    values = [row.accuracy for row in rows if row.accuracy is not None]
    interval = rows[0].interval
    if len(values) > 1 and np.ptp(values) > 0:
        low, high = mean_interval(values)
        interval = max(low, 0.0), min(high, 1.0)
    return Group(
        name=name,
        runs=rows,
        method=result["method"],
        labels=result["labels"],
        accuracy=statistics.mean(values) if values else None,
        interval=interval,
        evaluated_on=result["evaluated_on"],
        n=result["n"],
        steps=result["steps"],
    )


def _differing(firsts: list[_Member]) -> dict[str, list[Any]]:
    """The settings that differ; one that only some methods have counts if it is not the default in all of these."""
    defaults = [flat(to_json(member.config.replace(settings=Settings()))) for member in firsts]

    def differs(field: str) -> bool:
        having = [
            (m.settings[field], d.get(field)) for m, d in zip(firsts, defaults, strict=True) if field in m.settings
        ]
        some = len(having) < len(firsts) and any(value != default for value, default in having)
        return some or len({str(value) for value, _ in having}) > 1

    fields = dict.fromkeys(field for member in firsts for field in member.settings)
    return {field: [member.settings.get(field) for member in firsts] for field in fields if differs(field)}


def _pairs(groups: list[Group]) -> list[tuple[int, int]]:
    if len(groups) <= MOST_PAIRED:
        return list(combinations(range(len(groups)), 2))
    best = max(range(len(groups)), key=lambda i: groups[i].accuracy or 0.0)
    return [(best, i) for i in range(len(groups)) if i != best]


def _difference(first: str, a: list[_Member], second: str, b: list[_Member]) -> Difference:
    from scipy.stats import ttest_ind, ttest_rel

    def by_t(test: str, ours: list[float], theirs: list[float], found: Any) -> Difference:
        low, high = found.confidence_interval(0.95)
        difference = statistics.mean(ours) - statistics.mean(theirs)
        return Difference(first, second, test, difference, (float(low), float(high)), float(found.pvalue))

    if not all(member.result["n"] for member in (*a, *b)):
        return Difference(first, second, "not comparable: one has no accuracy")
    if a[0].config.data != b[0].config.data:
        return Difference(first, second, f"not comparable: their data, {a[0].config.data} and {b[0].config.data}")
    shared = [(x, y) for x in a for y in b if x.test is not None and x.test == y.test]
    pairs = [(x, y) for x, y in shared if (x.config.seed, x.config.fold) == (y.config.seed, y.config.fold)]
    ours, theirs = ([pair[side].accuracy for pair in pairs] for side in (0, 1))
    if len(pairs) > 1 and np.ptp(np.subtract(ours, theirs)) > 1e-9:
        return by_t(f"paired t, {len(pairs)} pairs of runs", ours, theirs, ttest_rel(ours, theirs))
    for x, y in (*pairs, *shared):
        one, other = x.held_out, y.held_out
        if one is not None and other is not None and np.array_equal(one.labels, other.labels):
            found = mcnemar(one.correct, other.correct)
            said = f"McNemar, {found.n:,} test samples"
            return Difference(x.name, y.name, said, x.accuracy - y.accuracy, None, found.p)
    ours, theirs = ([member.accuracy for member in team] for team in (a, b))
    if min(len(a), len(b)) > 1 and np.ptp(ours) + np.ptp(theirs) > 0:
        welch = ttest_ind(ours, theirs, equal_var=False)
        return by_t(f"Welch's t, {len(a)} and {len(b)} runs", ours, theirs, welch)
    return Difference(first, second, "not comparable: train both with the same seeds, on the same test samples")


def tables(c: Comparison) -> dict[str, list[list[str]]]:
    """The comparison as tables of text, each with its heading."""

    def ends(interval: Interval | None, n: int) -> str:
        return " to ".join(share(end, n) for end in interval) if interval else "–"

    groups = [["config", "method", "labels", "runs", "accuracy", "95% CI", "samples", "steps", "seconds"]]
    runs = [["run", "config", "seed", "accuracy", "95% CI", "seconds", "hardware"]]
    for g in c.groups:
        tested = f"{g.n:,} {g.evaluated_on}" if g.n else "–"
        seconds = statistics.mean(r.seconds for r in g.runs)
        reached = [share(g.accuracy, g.n), ends(g.interval, g.n), tested, f"{g.steps:,}", f"{seconds:,.0f}"]
        groups.append([g.name, g.method, f"{g.labels:,}", str(len(g.runs)), *reached])
        for r in g.runs:
            reached = [share(r.accuracy, g.n), ends(r.interval, g.n), f"{r.seconds:,.0f}", r.hardware]
            runs.append([r.name, g.name, str(r.seed), *reached])
    differences = [["first", "second", "points", "95% CI", "p", "", "test"]]
    for d in c.differences:
        found = ["–"] * 4
        if d.p is not None and d.difference is not None:
            between = " to ".join(f"{100 * end:+.2f}" for end in d.interval) if d.interval else "–"
            said = "they differ" if d.p < 0.05 else "no clear difference"
            found = [f"{100 * d.difference:+.2f}", between, f"{d.p:.2g}", said]
        differences.append([d.first, d.second, *found, d.test])
    settings = [["setting", *(g.name for g in c.groups)]]
    settings += [[field, *("–" if v is None else str(v) for v in values)] for field, values in c.settings.items()]
    if len(c.groups) > MOST_PAIRED:
        settings = [list(column) for column in zip(*settings, strict=True)]
    return {"groups": groups, "runs": runs, "differences": differences, "settings": settings}


def describe(c: Comparison) -> str:
    """The comparison as text for a terminal."""
    found = {name: aligned(rows) for name, rows in tables(c).items()}
    lines = found["groups"]
    if any(len(g.runs) > 1 for g in c.groups):
        lines += ["", *found["runs"]]
    if c.settings:
        lines += ["", "settings that differ", *found["settings"]]
    if c.differences:
        lines += ["", "differences (each p by itself: of many, some are below 0.05 at random)", *found["differences"]]
    return "\n".join(lines)


def write_comparison(c: Comparison, out: Path, *, force: bool = False) -> Path:
    """Write the page of a comparison; a file that exists is replaced only with ``force``."""
    must_be_free(out, force=force)
    intervals, curves, key = [], [], []
    for i, g in enumerate(c.groups):
        color, dash = f"c{i % COLORS}", (None, "7 3", "2 3")[i // COLORS % 3]
        key.append(Series(g.name, [], color, dash))
        if g.accuracy is not None and g.interval is not None:
            intervals.append(IntervalRow(g.name, g.accuracy, g.interval, color))
        for run in g.runs:
            found = curves_of(Run.open(Path(run.path)).metrics()).get(f"{g.evaluated_on}/accuracy")
            curves += [Series(run.name, found, color, dash)] if found else []
    highest = max((g.accuracy for g in c.groups if g.accuracy is not None), default=None)
    best = [g for g in c.groups if highest is not None and g.accuracy == highest]
    view = {"intervals": intervals, "curves": curves, "key": key, "best": best, "tables": tables(c)}
    write_page(out, render("comparison", c, c=c, **view))
    return out
