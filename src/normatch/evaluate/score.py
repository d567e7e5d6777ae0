"""A finished run scored anew, from its files and its data."""

from pathlib import Path
from typing import Any, Literal

from normatch.config import Config
from normatch.data import UNKNOWN, Dataset, Reading
from normatch.data.reading import DEFAULT
from normatch.engine.job import open_corpus
from normatch.engine.run import Run
from normatch.engine.runtime import Runtime
from normatch.errors import UserError
from normatch.evaluate.metrics import scores
from normatch.evaluate.predictor import load

__all__ = ["describe", "score_run"]


def score_run(
    path: Path,
    *,
    on: Literal["auto", "test", "validation"] = "auto",
    data_root: Path | None = None,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    reading: Reading = DEFAULT,
) -> dict[str, Any]:
    """The scores of the averaged weights on held-out items: the test set, or validation items where there is none."""
    run = Run.open(path)
    config = run.config.replace(device=device)
    if data_root is not None:
        config = config.replace(data_root=data_root)
    model = load(path, str(Runtime.of(config).device))
    which, items = _held_out(run, config, on, reading)
    if items.classes != model.classes:
        raise UserError(
            f"{config.data} has other classes now than {path} was trained on: give the data it was trained on"
        )
    known = items.labels != UNKNOWN
    p = model.predict_proba(items.inputs[known])
    return {"evaluated_on": which} | scores(p, items.labels[known], items.classes)


def describe(report: dict[str, Any]) -> str:
    """The scores as text."""
    width = max(len(entry["name"]) for entry in report["per_class"])
    lines = [f"accuracy {report['accuracy']:.2%} on {report['n']} {report['evaluated_on']} items"]
    lines += [
        f"  {entry['name']:<{width}}  n {entry['n']:>5}  "
        f"precision {entry['precision']:6.1%}  recall {entry['recall']:6.1%}"
        for entry in report["per_class"]
    ]
    return "\n".join(lines)


def _held_out(run: Run, config: Config, on: str, reading: Reading) -> tuple[str, Dataset]:
    corpus, validation = open_corpus(config, reading), run.split.validation
    if on in ("auto", "test") and corpus.test is not None:
        return "test", corpus.test
    if on in ("auto", "validation") and len(validation):
        train = corpus.train
        if validation.max() >= len(train):
            raise UserError(f"{config.data} has fewer items now than {run.path} was trained on: restore them")
        return "validation", Dataset(train.inputs[validation], train.labels[validation], train.classes)
    held = "test set" if on == "test" else "validation items" if on == "validation" else "held-out items"
    raise UserError(f"{run.path} has no {held}: train with --test-share or --validation to hold some out")
