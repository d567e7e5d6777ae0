"""Compare finished runs from their folders: runs that differ only by seed are repetitions of one config."""

import os
import re
import statistics
from collections.abc import Sequence
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
from normatch.report.findings import Numbers, curves_of
from normatch.report.page import render, share, write_page
from normatch.significance import mcnemar, mean_interval, wilson_interval
from normatch.text import aligned, counted
from normatch.training.predictions import HeldOutPredictions
from normatch.training.run import Run
from normatch.training.train import REPETITION

__all__ = ["compare", "describe", "tables", "write_comparison"]

Interval = tuple[float, float]

MOST_PAIRED = 6
"""Most configs of which all pairs are compared; of more, each is compared with the best."""


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
        config = self.config
        drawn = (config.test_share, config.seed) if config.test_share else ()
        return (config.data, drawn, self.run.test_samples, self.result["n"])

    @cached_property
    def held_out(self) -> HeldOutPredictions | None:
        return read_held_out(self.run, read_spec(self.run.path / "model.json").classes)

    def row(self) -> Numbers:
        result, n = self.result, self.result["n"]
        return {
            "name": self.name,
            "path": str(self.run.path),
            "seed": self.config.seed,
            "accuracy": result["accuracy"],
            "interval": wilson_interval(round(self.accuracy * n), n) if n else None,
            "seconds": result["seconds"],
            "hardware": result["hardware"],
        }


def _resolved(config: Config) -> Config:
    """The config with its own data under one name: as given, a place may be relative, or a link to another."""

    def resolved(place: str | Path) -> str:
        return os.path.realpath(Path(place).expanduser())

    data = config.data if config.data in sources else resolved(config.data)
    return config.replace(data=data, unlabelled=config.unlabelled and Path(resolved(config.unlabelled)))


def compare(paths: Sequence[Path]) -> Numbers:
    """Compare finished runs, by the names of the numbers in JSON; neither data nor weights are read.

    ``groups`` are the configs and their runs; ``same_data`` is whether all were trained on the same data, so that their
    accuracies are comparable; ``settings`` are the config fields that differ, with the value of each group, None if its
    method has no such setting; ``differences`` are of pairs of groups.
    """
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
    pairs = list(combinations(range(len(groups)), 2))
    if len(groups) > MOST_PAIRED:
        best = max(range(len(groups)), key=lambda i: groups[i]["accuracy"] or 0.0)
        pairs = [(best, i) for i in range(len(groups)) if i != best]
    return {
        "groups": groups,
        "same_data": len({member.config.data for member in members}) == 1,
        "settings": _differing([team[0] for team in teams]),
        "differences": [_difference(groups[i]["name"], teams[i], groups[j]["name"], teams[j]) for i, j in pairs],
    }


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


def _group(name: str, team: list[_Member]) -> Numbers:
    """Runs of one config: their mean accuracy and its 95% confidence interval, over seeds (Student's t), or of one run
    over its test samples (Wilson)."""
    rows, result = [member.row() for member in team], team[0].result
    values = [row["accuracy"] for row in rows if row["accuracy"] is not None]
    interval = rows[0]["interval"]
    if len(values) > 1 and np.ptp(values) > 0:
        low, high = mean_interval(values)
        interval = max(low, 0.0), min(high, 1.0)
    return {
        "name": name,
        "runs": rows,
        "accuracy": statistics.mean(values) if values else None,
        "interval": interval,
        **{field: result[field] for field in ("method", "labels", "evaluated_on", "n", "steps")},
    }


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


def _difference(first: str, a: list[_Member], second: str, b: list[_Member]) -> Numbers:
    """The accuracy of the first less that of the second, and the probability ``p`` of one at least this large if both
    were equally good; these are None if they cannot be compared.

    paired t: runs of the same seeds and test samples; McNemar: one run of each on the same test samples; Welch's t:
    other seeds or test samples.
    """
    from scipy.stats import ttest_ind, ttest_rel

    found: Numbers = {"first": first, "second": second, "test": "", "difference": None, "interval": None, "p": None}

    def by_t(test: str, ours: list[float], theirs: list[float], t: Any) -> Numbers:
        low, high = t.confidence_interval(0.95)
        difference = statistics.mean(ours) - statistics.mean(theirs)
        return found | {"test": test, "difference": difference, "interval": (low, high), "p": float(t.pvalue)}

    if not all(member.result["n"] for member in (*a, *b)):
        return found | {"test": "not comparable: one has no accuracy"}
    if a[0].config.data != b[0].config.data:
        return found | {"test": f"not comparable: their data, {a[0].config.data} and {b[0].config.data}"}
    shared = [(x, y) for x in a for y in b if x.test is not None and x.test == y.test]
    pairs = [(x, y) for x, y in shared if (x.config.seed, x.config.fold) == (y.config.seed, y.config.fold)]
    ours, theirs = ([pair[side].accuracy for pair in pairs] for side in (0, 1))
    if len(pairs) > 1 and np.ptp(np.subtract(ours, theirs)) > 1e-9:
        return by_t(f"paired t, {len(pairs)} pairs of runs", ours, theirs, ttest_rel(ours, theirs))
    for x, y in (*pairs, *shared):
        one, other = x.held_out, y.held_out
        if one is not None and other is not None and np.array_equal(one.labels, other.labels):
            paired = mcnemar(one.correct, other.correct)
            said = {"test": f"McNemar, {paired.n:,} test samples", "p": paired.p}
            return found | said | {"first": x.name, "second": y.name, "difference": x.accuracy - y.accuracy}
    ours, theirs = ([member.accuracy for member in team] for team in (a, b))
    if min(len(a), len(b)) > 1 and np.ptp(ours) + np.ptp(theirs) > 0:
        welch = ttest_ind(ours, theirs, equal_var=False)
        return by_t(f"Welch's t, {len(a)} and {len(b)} runs", ours, theirs, welch)
    return found | {"test": "not comparable: train both with the same seeds, on the same test samples"}


def tables(c: Numbers) -> dict[str, list[list[str]]]:
    """The comparison as tables of text, each with its heading."""

    def ends(interval: Interval | None, n: int) -> str:
        return " to ".join(share(end, n) for end in interval) if interval else "–"

    groups = [["config", "method", "labels", "runs", "accuracy", "95% CI", "samples", "steps", "seconds"]]
    runs = [["run", "config", "seed", "accuracy", "95% CI", "seconds", "hardware"]]
    for g in c["groups"]:
        name, n, seconds = g["name"], g["n"], statistics.mean(r["seconds"] for r in g["runs"])
        tested = f"{n:,} {g['evaluated_on']}" if n else "–"
        reached = [share(g["accuracy"], n), ends(g["interval"], n), tested, f"{g['steps']:,}", f"{seconds:,.0f}"]
        groups.append([name, g["method"], f"{g['labels']:,}", str(len(g["runs"])), *reached])
        for r in g["runs"]:
            reached = [share(r["accuracy"], n), ends(r["interval"], n), f"{r['seconds']:,.0f}", r["hardware"]]
            runs.append([r["name"], name, str(r["seed"]), *reached])
    differences = [["first", "second", "points", "95% CI", "p", "", "test"]]
    for d in c["differences"]:
        found = ["–"] * 4
        if d["p"] is not None:
            between = " to ".join(f"{100 * end:+.2f}" for end in d["interval"]) if d["interval"] else "–"
            said = "they differ" if d["p"] < 0.05 else "no clear difference"
            found = [f"{100 * d['difference']:+.2f}", between, f"{d['p']:.2g}", said]
        differences.append([d["first"], d["second"], *found, d["test"]])
    settings = [["setting", *(g["name"] for g in c["groups"])]]
    settings += [[field, *("–" if v is None else str(v) for v in values)] for field, values in c["settings"].items()]
    if len(c["groups"]) > MOST_PAIRED:
        settings = [list(column) for column in zip(*settings, strict=True)]
    return {"groups": groups, "runs": runs, "differences": differences, "settings": settings}


def describe(c: Numbers) -> str:
    """The comparison as text for a terminal."""
    found = {name: aligned(rows) for name, rows in tables(c).items()}
    lines = found["groups"]
    if any(len(g["runs"]) > 1 for g in c["groups"]):
        lines += ["", *found["runs"]]
    if c["settings"]:
        lines += ["", "settings that differ", *found["settings"]]
    if c["differences"]:
        lines += ["", "differences (each p by itself: of many, some are below 0.05 at random)", *found["differences"]]
    return "\n".join(lines)


def write_comparison(c: Numbers, out: Path, *, force: bool = False) -> Path:
    """Write the page of a comparison; a file that exists is replaced only with ``force``."""
    must_be_free(out, force=force)
    intervals, curves, key = [], [], []
    for i, g in enumerate(c["groups"]):
        color, dash = f"c{i % COLORS}", (None, "7 3", "2 3")[i // COLORS % 3]
        key.append(Series(g["name"], [], color, dash))
        if g["interval"] is not None:
            intervals.append(IntervalRow(g["name"], g["accuracy"], g["interval"], color))
        for run in g["runs"]:
            found = curves_of(Run.open(Path(run["path"])).metrics()).get(f"{g['evaluated_on']}/accuracy")
            curves += [Series(run["name"], found, color, dash)] if found else []
    reached = [g["accuracy"] for g in c["groups"] if g["accuracy"] is not None]
    best = [g for g in c["groups"] if reached and g["accuracy"] == max(reached)]
    view = {"intervals": intervals, "curves": curves, "key": key, "best": best, "tables": tables(c)}
    write_page(out, render("comparison", c, c=c, **view))
    return out
