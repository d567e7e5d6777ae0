"""Compare finished runs from their folders: runs that differ only by seed are repetitions of one config."""

import os
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
from normatch.evaluate.answers import Answers, read_answers
from normatch.files import must_be_free
from normatch.methods.base import Settings
from normatch.nets.model import read_spec
from normatch.report.charts import COLORS, IntervalRow, Series, beginning
from normatch.report.findings import curves_of
from normatch.report.page import render, share, write_page
from normatch.significance import mcnemar, mean_interval, wilson_interval
from normatch.text import aligned, counted
from normatch.training.run import Run
from normatch.training.train import MAY_DIFFER

__all__ = ["Comparison", "Difference", "Group", "RunRow", "compare", "describe", "verdict", "write_comparison"]

NO_SETTINGS = MAY_DIFFER | {"seed", "fold", "log_every", "evaluate_every", "checkpoint_every"}
"""Config fields that make no other experiment: its repetition, where it is computed, and what it writes."""

MOST_PAIRED = 6
"""Most configs of which all pairs are compared; of more, each is compared with the best."""

MOST_DRAWN = 30
"""Most configs whose curves are drawn: more cannot be told apart."""


@dataclass(frozen=True)
class RunRow:
    """One run: its name in the comparison, and its result."""

    name: str
    path: str
    seed: int
    accuracy: float | None
    interval: tuple[float, float] | None
    seconds: float
    hardware: str


@dataclass(frozen=True)
class Group:
    """Runs of one config; the accuracy is the mean over them."""

    name: str
    runs: list[str]
    method: str
    labels: int
    """Number of labelled samples that were trained on."""
    accuracy: float | None
    interval: tuple[float, float] | None
    """95% confidence interval: over seeds (Student's t), or of one run over its test samples (Wilson)."""
    evaluated_on: str | None
    n: int
    steps: int
    seconds: float
    hardware: str


@dataclass(frozen=True)
class Difference:
    """The accuracy of the first config less that of the second, and the probability ``p`` of one at least this large
    if both were equally good."""

    first: str
    second: str
    test: str | None
    """paired t: runs of the same seeds and test samples; McNemar: a run of each on the same test samples; Welch's t:
    other seeds or test samples. None if they cannot be compared."""
    n: int = 0
    """Number of pairs of runs, of test samples, or of runs."""
    difference: float | None = None
    interval: tuple[float, float] | None = None
    p: float | None = None
    why_not: str | None = None


@dataclass(frozen=True)
class Comparison:
    """The content of a comparison, JSON-ready."""

    runs: list[RunRow]
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
        self.settings = {field: value for field, value in fields.items() if field not in NO_SETTINGS}

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
    def answers(self) -> Answers | None:
        return read_answers(self.run, read_spec(self.run.path / "model.json").classes)


def compare(paths: Sequence[Path]) -> Comparison:
    """Compare finished runs; neither data nor weights are read."""
    if len(paths) < 2:
        raise UserError(f"{counted(len(paths), 'run')} given: compare needs at least two")
    places = [path.resolve() for path in paths]
    for i, place in enumerate(places):
        if place in places[:i]:
            raise UserError(f"{paths[i]} is given twice: name each run once")
    members = [_Member(name, path) for name, path in zip(_names(places), paths, strict=True)]
    by_config: dict[str, list[_Member]] = {}
    for member in members:
        by_config.setdefault(repr(member.settings), []).append(member)
    teams = list(by_config.values())
    groups = [_group(name, team) for name, team in zip(_group_names(teams), teams, strict=True)]
    rows = [
        RunRow(
            m.name,
            str(m.run.path),
            m.config.seed,
            m.result["accuracy"],
            _wilson(m),
            m.result["seconds"],
            m.result["hardware"],
        )
        for m in members
    ]
    return Comparison(
        runs=rows,
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
    begun = [beginning([member.name for member in team]).rstrip("-_. /") for team in teams]
    names = [name if name and begun.count(name) == 1 else team[0].name for name, team in zip(begun, teams, strict=True)]
    return [
        team[0].name if len(team) == 1 else f"{name} ({len(team)} runs)"
        for name, team in zip(names, teams, strict=True)
    ]


def _resolved(config: Config) -> Config:
    """The config with its own data under one name: as given, a place may be relative, or a link to another."""

    def resolved(place: str | Path) -> str:
        return os.path.realpath(Path(place).expanduser())

    data = config.data if config.data in sources else resolved(config.data)
    return config.replace(data=data, unlabelled=config.unlabelled and Path(resolved(config.unlabelled)))


def _wilson(member: _Member) -> tuple[float, float] | None:
    n = member.result["n"]
    return wilson_interval(round(member.accuracy * n), n) if n else None


def _group(name: str, team: list[_Member]) -> Group:
    first, result = team[0], team[0].result
    values = [member.accuracy for member in team if member.result["n"]]
    varies = len(values) > 1 and np.ptp(values) > 0
    return Group(
        name=name,
        runs=[member.name for member in team],
        method=result["method"],
        labels=result["labels"],
        accuracy=statistics.mean(values) if values else None,
        interval=_within(mean_interval(values)) if varies else _wilson(first),
        evaluated_on=result["evaluated_on"],
        n=result["n"],
        steps=result["steps"],
        seconds=statistics.mean(member.result["seconds"] for member in team),
        hardware=", ".join(dict.fromkeys(member.result["hardware"] for member in team)),
    )


def _within(interval: tuple[float, float]) -> tuple[float, float]:
    """The part of an interval that accuracies can have."""
    return max(interval[0], 0.0), min(interval[1], 1.0)


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

    for name, team in ((first, a), (second, b)):
        if not all(member.result["n"] for member in team):
            return Difference(first, second, None, why_not=f"{name} has no accuracy")
    if a[0].config.data != b[0].config.data:
        return Difference(first, second, None, why_not=f"their data differs: {a[0].config.data} and {b[0].config.data}")
    shared = [(x, y) for x in a for y in b if x.test is not None and x.test == y.test]
    seeds = {x.config.seed: (x, y) for x, y in shared if x.config.seed == y.config.seed}
    ours, theirs = ([pair[side].accuracy for pair in seeds.values()] for side in (0, 1))
    if len(seeds) > 1 and np.ptp(np.subtract(ours, theirs)) > 1e-9:
        found = ttest_rel(ours, theirs)
        return _by_t(first, second, "paired t", len(seeds), statistics.mean(ours) - statistics.mean(theirs), found)
    for x, y in (*seeds.values(), *shared):
        if x.answers is None or y.answers is None or not np.array_equal(x.answers.labels, y.answers.labels):
            continue
        won = mcnemar(x.answers.correct, y.answers.correct)
        return Difference(x.name, y.name, "McNemar", won.n, x.accuracy - y.accuracy, None, won.p)
    ours, theirs = ([member.accuracy for member in team] for team in (a, b))
    if min(len(a), len(b)) > 1 and np.ptp(ours) + np.ptp(theirs) > 0:
        found = ttest_ind(ours, theirs, equal_var=False)
        return _by_t(
            first, second, "Welch's t", len(a) + len(b), statistics.mean(ours) - statistics.mean(theirs), found
        )
    return Difference(
        first, second, None, why_not="they have no seeds or test samples in common: train both with the same seeds"
    )


def _by_t(first: str, second: str, test: str, n: int, difference: float, found: Any) -> Difference:
    low, high = found.confidence_interval(0.95)
    return Difference(first, second, test, n, difference, (float(low), float(high)), float(found.pvalue))


def verdict(d: Difference) -> str:
    """A difference as a sentence.

    >>> verdict(Difference("a", "b", "paired t", 3, 0.021, (0.004, 0.038), 0.03))
    'a against b: +2.10 points (95% CI +0.40 to +3.80), p = 0.03 (paired t, 3 pairs of runs): they differ'
    """
    if d.test is None or d.p is None or d.difference is None:
        return f"{d.first} against {d.second}: not comparable, {d.why_not}"
    spread = f" (95% CI {points(d.interval[0])} to {points(d.interval[1])})" if d.interval else ""
    said = f"p = {d.p:.2g} ({d.test}, {of(d)}): {'they differ' if d.p < 0.05 else 'no clear difference'}"
    return f"{d.first} against {d.second}: {points(d.difference)} points{spread}, {said}"


def points(difference: float) -> str:
    return f"{100 * difference:+.2f}"


def of(d: Difference) -> str:
    """What a test counts."""
    units = {"paired t": ("pair of runs", "pairs of runs"), "McNemar": ("test sample", "test samples")}
    return counted(d.n, *units.get(d.test or "", ("run", "runs")))


def tables(c: Comparison) -> dict[str, list[list[str]]]:
    """The comparison as tables of text, each with its heading."""
    groups = [["config", "method", "labels", "runs", "accuracy", "95% CI", "samples", "steps", "seconds", "hardware"]]
    groups += [
        [
            *(g.name, g.method, f"{g.labels:,}", str(len(g.runs)), share(g.accuracy, g.n), _ends(g.interval, g.n)),
            *(f"{g.n:,} {g.evaluated_on}" if g.n else "–", f"{g.steps:,}", f"{g.seconds:,.0f}", g.hardware),
        ]
        for g in c.groups
    ]
    n = max(g.n for g in c.groups)
    named = {name: g.name for g in c.groups for name in g.runs}
    runs = [["run", "config", "seed", "accuracy", "95% CI", "seconds", "hardware"]]
    runs += [
        [
            r.name,
            named[r.name],
            str(r.seed),
            share(r.accuracy, n),
            _ends(r.interval, n),
            f"{r.seconds:,.0f}",
            r.hardware,
        ]
        for r in c.runs
    ]
    differences = [["first", "second", "difference in points", "95% CI", "p", "test"]]
    for d in c.differences:
        if d.p is None or d.difference is None:
            differences.append([d.first, d.second, "–", "–", "–", f"not comparable: {d.why_not}"])
        else:
            ends = " to ".join(map(points, d.interval)) if d.interval else "–"
            differences.append([d.first, d.second, points(d.difference), ends, f"{d.p:.2g}", f"{d.test}, {of(d)}"])
    settings = [["setting", *(g.name for g in c.groups)]]
    settings += [[field, *("–" if v is None else str(v) for v in values)] for field, values in c.settings.items()]
    return {"groups": groups, "runs": runs, "differences": differences, "settings": settings}


def _ends(interval: tuple[float, float] | None, n: int) -> str:
    return " to ".join(share(end, n) for end in interval) if interval else "–"


def describe(c: Comparison) -> str:
    """The comparison as text for a terminal."""
    found = tables(c)
    lines = aligned([row[:-1] for row in found["groups"]])
    if len(c.runs) > len(c.groups):
        lines += ["", "each run", *aligned([row[:-1] for row in found["runs"]])]
    if c.settings:
        lines += ["", "settings that differ", *aligned(found["settings"])]
    if c.differences:
        lines += ["", "differences (each by itself: of many, some are below 0.05 at random)"]
    return "\n".join([*lines, *(f"  {verdict(d)}" for d in c.differences)])


def write_comparison(c: Comparison, out: Path, *, force: bool = False) -> Path:
    """Write the page of a comparison; a file that exists is replaced only with ``force``."""
    must_be_free(out, force=force)
    colors = [(f"c{i % COLORS}", (None, "7 3", "2 3")[i // COLORS % 3]) for i in range(len(c.groups))]
    intervals = [
        IntervalRow(g.name, g.accuracy, g.interval, color)
        for g, (color, _) in zip(c.groups, colors, strict=True)
        if g.accuracy is not None and g.interval is not None
    ]
    curves, key = [], []
    paths = {run.name: Path(run.path) for run in c.runs}
    for g, (color, dash) in zip(c.groups[:MOST_DRAWN], colors, strict=False):
        for name in g.runs:
            found = curves_of(list(Run.open(paths[name]).metrics())).get(f"{g.evaluated_on}/accuracy", [])
            curves += [Series(name, found, color, dash)] if found else []
        key += [Series(g.name, [], color, dash)]
    scored = [g for g in c.groups if g.accuracy is not None]
    best = [g for g in scored if g.accuracy == max(g.accuracy or 0.0 for g in scored)]
    drawn = {"intervals": intervals, "curves": curves, "key": key, "best": best}
    write_page(out, render("comparison", to_json(c), c=c, tables=tables(c), **drawn))
    return out
