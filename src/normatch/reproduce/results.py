"""Results as JSON files, one per run: its config, hardware, accuracy and curves."""

import json
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from normatch.config import Config, from_json, to_json
from normatch.errors import UserError, reason
from normatch.files import checked, read_json, replacing
from normatch.nets.model import load_model
from normatch.report.thinning import sampled
from normatch.reproduce.budget import EVALUATIONS
from normatch.training.diagnosis import NOT_FINITE
from normatch.training.machine import stamp
from normatch.training.run import Run
from normatch.training.runtime import Runtime
from normatch.training.train import MAY_DIFFER

__all__ = ["Result", "question", "read_results", "write_result"]

NOT_IN_QUESTION = MAY_DIFFER | {"seed", "fold", "log_every", "evaluate_every", "checkpoint_every"}
"""Config fields in which results for the same cell may differ: the seed, where a run is trained, how often it logs."""


FIELDS: dict[str, Any] = {
    "failed": str | None,
    "seconds": float,
    "hardware": str,
    "versions": dict[str, str],
    "date": str,
}
"""Fields of a result file, and their types."""


@dataclass(frozen=True)
class Result:
    """The content of a result file. Shares are from 0 to 1."""

    path: Path
    config: Config
    failed: str | None
    """Why the run diverged, which is a result too; None if it did not."""
    accuracy: float | None
    """Accuracy of the final averaged weights."""
    confident: float | None
    """Share of pseudo-labels above 0.95 in the last record of training."""
    weights: int | None
    """Number of weights of the auxiliary classifiers."""
    products: int | None
    """Multiply-adds in matrix products of the auxiliary classifiers for one item."""
    seconds: float
    hardware: str
    torch: str
    date: str
    curves: dict[str, list[tuple[int, float]]]

    @property
    def seed(self) -> int:
        return self.config.seed

    @cached_property
    def question(self) -> str:
        return question(self.config)


def question(config: Config) -> str:
    """The config without the fields that may differ (NOT_IN_QUESTION): equal for results that answer the same cell."""
    return repr({name: value for name, value in to_json(config).items() if name not in NOT_IN_QUESTION})


def write_result(run: Run, path: Path, whole: int) -> None:
    """Write the result of a finished or diverged run; ``whole`` is the number of steps of its whole schedule."""
    config, curves = run.config, _curves(run)
    broken = next((warning for warning in run.warnings if warning["name"] == NOT_FINITE), None)
    ended = run.result if run.finished else _result_of_diverged(config, curves)
    seen = [value for _, value in curves.get(f"{ended['evaluated_on']}/accuracy", [])]
    split = run.split
    kept = ("evaluated_on", "n", "method", "seed", "labels", "steps", "seconds", "hardware", "versions", "date")
    _write(
        path,
        {
            "name": config.name,
            # The location of the files is not part of the result.
            "config": to_json(config) | {"data_root": None},
            **{name: ended[name] for name in kept},
            "schedule": {"steps": config.steps, "whole": whole, "share": config.steps / whole},
            "failed": None if run.finished or broken is None else f"step {broken['step']}: {broken['message']}",
            "accuracy": {
                "last weights": ended["accuracy"],
                f"mean of the last {EVALUATIONS} evaluations": _mean(seen[-EVALUATIONS:]),
                "evaluations in that mean": len(seen[-EVALUATIONS:]),
                "best evaluation (chosen by the test set)": max(seen, default=None),
            },
            "labelled": split.labelled.tolist(),
            "unlabelled": len(split.unlabelled),
            "auxiliary": _auxiliary(run) if run.finished else {"weights": None, "products": None},
            "warnings": [f"{warning['name']} at step {warning['step']}" for warning in run.warnings],
            "curves": {name: _shortened(points) for name, points in curves.items()},
        },
    )


def read_results(folder: Path) -> list[Result]:
    """All results in a folder, sorted by file name."""
    return [_read(path) for path in sorted(folder.glob("*.json"))]


def _read(path: Path) -> Result:
    try:
        found = checked(read_json(path), FIELDS)
        confident = found["curves"].get("pseudo/confident") or [(0, None)]
        return Result(
            path=path,
            config=from_json(Config, found["config"]),
            failed=found["failed"],
            accuracy=_share("accuracy", found["accuracy"]["last weights"]),
            confident=_share("pseudo/confident", confident[-1][1]),
            weights=found["auxiliary"]["weights"],
            products=found["auxiliary"]["products"],
            seconds=found["seconds"],
            hardware=found["hardware"],
            torch=found["versions"]["torch"],
            date=found["date"],
            curves={name: [(int(step), float(value)) for step, value in c] for name, c in found["curves"].items()},
        )
    except (AttributeError, IndexError, OSError, KeyError, TypeError, ValueError, UserError) as error:
        raise UserError(f"{path} is no result of a run ({reason(error)}): move it elsewhere") from error


def _share(name: str, value: Any) -> float | None:
    """A share from 0 to 1, or None; ValueError for anything else, such as percent."""
    if value is None or (isinstance(value, int | float) and 0 <= value <= 1):
        return value
    raise ValueError(f"{name} is {value!r} instead of a share from 0 to 1")


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
    seconds = curves.get("seconds") or [(0, 0.0)]
    return {
        "accuracy": None,
        "evaluated_on": "test" if "test/accuracy" in curves else None,
        "n": 0,
        "method": config.method,
        "seed": config.seed,
        "labels": config.labels,
        "steps": seconds[-1][0],
        "seconds": seconds[-1][1],
        "hardware": Runtime.of(config).describe(),
        **stamp(),
    }


def _auxiliary(run: Run) -> dict[str, int]:
    shapes = [p.shape for p in load_model(run.path).auxiliary.parameters()]
    return {
        "weights": sum(map(math.prod, shapes)),
        "products": sum(math.prod(shape) for shape in shapes if len(shape) > 1),
    }


def _shortened(points: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """At most a few hundred of the points, with values rounded to five significant digits."""
    return [(step, float(f"{value:.5g}")) for step, value in sampled(points)]


def _write(path: Path, fields: dict[str, Any]) -> None:
    """Write JSON with one line per field; json's indentation would give each point of a curve its own line."""
    lines = (f"  {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in fields.items())
    with replacing(path) as part:
        part.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
