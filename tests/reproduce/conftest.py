"""Results that no run has made, and tables read back from what is written."""

import re
from pathlib import Path
from typing import Any

from normatch.reproduce.budget import Budget
from normatch.reproduce.paper import STUDIES, Trial
from normatch.reproduce.results import Result

ALL_TRIALS = list({(t.recipe, t.name, t.epochs): t for study in STUDIES.values() for t in study.trials()}.values())
"""Each trial of the paper once."""


def trial_of(study: str, row: int, column: int = 0) -> Trial:
    trial = STUDIES[study].rows[row].cells[column].trial
    assert trial is not None
    return trial


def make_result(
    trial: Trial,
    seed: int = 0,
    steps: int = 2048,
    accuracy: float | None = 0.9,
    *,
    stand_in: str | None = None,
    change: dict[str, Any] | None = None,
    **fields: Any,
) -> Result:
    """A run of the trial in so many steps; ``change`` are fields of its config, ``fields`` its own."""
    config = Budget("", steps=steps).apply(trial, seed, stand_in)
    name = f"{stand_in or trial.recipe}-{trial.name}-{steps}-seed{seed}"
    given: dict[str, Any] = {
        "path": Path("elsewhere") / f"{name}.json",
        "config": config.replace(name=name, **(change or {})),
        "failed": None,
        "accuracy": accuracy,
        "confident": None,
        "weights": None,
        "products": None,
        "seconds": 1.0,
        "hardware": "an abacus",
        "torch": "2.6",
        "date": "2026-01-02T03:04:05+00:00",
        "curves": {},
    }
    return Result(**given | fields)


def broken(trial: Trial, seed: int = 0, **fields: Any) -> Result:
    """A run that could not go on, though it was accurate once."""
    return make_result(trial, seed, accuracy=None, failed="step 7: loss or weights are not finite numbers", **fields)


def tables(markdown: str) -> list[list[dict[str, str]]]:
    """The tables of a page: each line by the names of the columns."""
    found = []
    for block in re.findall(r"(?:^\|.*\|\n?)+", markdown, re.MULTILINE):
        head, rule, *lines = ([cell.strip() for cell in line[1:-1].split(" | ")] for line in block.splitlines())
        assert set(rule) == {"---"}
        found.append([dict(zip(head, line, strict=True)) for line in lines])
    return found
