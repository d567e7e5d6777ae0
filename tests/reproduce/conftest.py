"""Results that no run has made."""

from pathlib import Path
from typing import Any

from normatch.reproduce.paper import STUDIES, Trial
from normatch.reproduce.results import Result

ALL_TRIALS = list({(t.recipe, t.name, t.epochs): t for study in STUDIES.values() for t in study.trials()}.values())
"""Each trial of the paper once."""


def trial_of(study: str, row: int, column: int = 0) -> Trial:
    return STUDIES[study].rows[row].cells[column].trial


def make_result(
    trial: Trial,
    seed: int = 0,
    accuracy: float | None = 0.9,
    *,
    steps: int | None = None,
    change: dict[str, Any] | None = None,
    **fields: Any,
) -> Result:
    """A run of the trial; ``change`` are fields of its config, ``fields`` its own."""
    config = trial.config(seed, steps)
    name = f"{trial.recipe}-{trial.name}-{config.steps}-seed{seed}"
    given: dict[str, Any] = {
        "path": Path("elsewhere") / f"{name}.json",
        "config": config.replace(name=name, **(change or {})),
        "failed": None,
        "accuracy": accuracy,
        "seconds": 1.0,
        "hardware": "an abacus",
        "torch": "2.6",
        "date": "2026-01-02T03:04:05+00:00",
        "curves": {},
    }
    return Result(**given | fields)
