"""Pages: one self-contained HTML file from the template ``page.html``, the style sheets and numbers."""

import base64
import io
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from numpy.typing import NDArray

import normatch
from normatch.config import flat, to_json
from normatch.errors import UserError
from normatch.files import must_be_free, replacing
from normatch.metrics import COLDEST, HOTTEST
from normatch.report import charts
from normatch.report.charts import Series
from normatch.report.findings import Evidence, Numbers, examine, gather
from normatch.training.run import Run

__all__ = ["numbers_of", "render", "share", "write_page", "write_report"]

LARGEST = 128
"""Largest side of a picture on the page, in pixels."""

LOSSES = {
    "loss": "all losses",
    "loss/labelled": "labelled images",
    "loss/unlabelled": "pseudo-labelled images",
    "loss/auxiliary": "{second} on labelled images",
    "loss/density": "likelihood of features",
    "loss/auxiliary_pseudo": "{second} on pseudo-labels",
}
LOSS_COLORS = ("text", "blue", "red", "green", "grey", "brown")
HELD_OUT = {
    f"{which}/accuracy": (f"{which} accuracy", c, None) for which, c in (("test", "blue"), ("validation", "red"))
}


def write_report(
    run: Path,
    out: Path | None = None,
    *,
    force: bool = False,
    tell: Callable[[str], object] = lambda _: None,
    **how: Any,
) -> Path:
    """Write the page of a finished run, ``RUN/report.html`` by default, and return its path.

    An earlier ``RUN/report.html`` is replaced if the data could be read; it or another file, with ``force``. ``tell``
    is called with a sentence if the data could not be read, which the page then lacks. ``how`` is as for
    :func:`normatch.report.findings.gather`.
    """
    usual = Run.open(run).path / "report.html"
    place = out or usual
    must_be_free(place, force=force or place.resolve() == usual.resolve())
    evidence = gather(run, **how)
    if evidence.gone is not None:
        if place.exists() and not force:
            raise UserError(
                f"{place} exists already, and a new page would lack the data, which cannot be read ({evidence.gone}): "
                "replace it with --force, or say where the data is with --data"
            )
        tell(evidence.gone_or(""))
    write_page(place, render_report(evidence, examine(evidence)))
    return place


def numbers_of(run: Path, **how: Any) -> Numbers:
    """The numbers of the page of a run, JSON-ready; ``how`` is as for :func:`normatch.report.findings.gather`."""
    numbers: Numbers = to_json(examine(gather(run, **how)))
    return numbers


def write_page(place: Path, markup: str) -> None:
    with replacing(place) as part:
        # File names that are not valid text are written with escapes.
        part.write_text(markup, encoding="utf-8", errors="backslashreplace")


def render(kind: str, numbers: Any, **view: Any) -> str:
    """The page of a ``kind``, report or comparison, with its numbers in it as JSON."""
    style = charts.sheet("charts.css") + charts.sheet("style.css")
    shell = {"kind": kind, "numbers": to_json(numbers), "version": normatch.__version__, "style": style}
    return environment().get_template("page.html").render(**shell, **view)


@cache
def environment() -> Environment:
    """Jinja with what the template uses; all text is escaped, and control characters in it are made visible."""
    made = Environment(
        loader=PackageLoader("normatch.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=charts.clean,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.policies["json.dumps_kwargs"] = {"allow_nan": False}
    made.globals |= {"charts": charts, "coldest": COLDEST, "hottest": HOTTEST}
    made.filters |= {"share": share, "duration": duration, "numeric_columns": numeric_columns}
    made.filters |= {"count": "{:,}".format, "percent": "{:.0%}".format}
    return made


def share(value: float | None, n: int = 0) -> str:
    """A share in percent: with two decimals if it is of more than a thousand samples ``n``; a dash if it is None.

    >>> share(0.9611, 360), share(0.84491, 10_000), share(None)
    ('96.1%', '84.49%', '–')
    """
    return "–" if value is None else f"{value:.2%}" if n > 1000 else f"{value:.1%}"


def duration(seconds: float) -> str:
    """Seconds as text, in seconds, minutes or hours.

    >>> duration(35.2), duration(4000)
    ('35 s', '1 h 7 min')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def numeric_columns(rows: list[list[str]]) -> list[bool]:
    """Which columns of a table, after the first, have numbers only."""
    columns = list(zip(*rows[1:], strict=True))
    return [i > 0 and all(re.match(r"[-+]?\d|–?$", cell) for cell in column) for i, column in enumerate(columns)]


def render_report(evidence: Evidence, findings: Numbers) -> str:
    """The page of a report: findings, pictures, and the series and selections to draw."""
    curves = findings["curves"]

    def series(names: Mapping[str, tuple[str, str, str | None]]) -> list[Series]:
        second = findings["auxiliary"] or "second classifier"
        found = (
            Series(name.replace("{second}", second), curves[key], color, dash)
            for key, (name, color, dash) in names.items()
            if key in curves
        )
        return [s for s in found if s.known]

    losses = {
        key: (LOSSES.get(key, key.removeprefix("loss/")), LOSS_COLORS[i % len(LOSS_COLORS)], None)
        for i, key in enumerate(key for key in curves if key.split("/")[0] == "loss")
    }
    fields = flat(findings["config"])
    return render(
        "report",
        findings,
        f=findings,
        baselines=baselines_of(findings),
        accuracy=series(HELD_OUT),
        losses=series(losses),
        figure_3=series(charts.FIGURE_3),
        figure_4=series(charts.FIGURE_4),
        balance=balance_of(findings),
        each_class=[
            ["class", "precision", "recall", "F1", findings["noun"]],
            *map(_class_row, findings["per_class"] or []),
        ],
        confused=confused(findings),
        pictures=pictures_of(evidence, findings),
        fields=[["field", "value"], *([name, str("–" if v is None else v)] for name, v in fields.items())],
    )


def baselines_of(findings: Numbers) -> list[list[str]]:
    """The table of baselines; those scored by cross-validation over the labels have nothing to stand beside."""
    heading = ["baseline", "accuracy", "p", "on"]
    rows = [
        [
            of["name"],
            share(of["accuracy"], of["n"]),
            "–" if of["p"] is None else f"{of['p']:.2g}",
            of["features"].removeprefix("features of "),
        ]
        for of in findings["baselines"]
    ]
    return [heading, *rows] if rows else []


def balance_of(findings: Numbers, most: int = 30) -> Numbers | None:
    """Names and shares of the classes to draw: those whose pseudo-labels differ most from the truth, if it is known."""
    found, classes = findings["balance"], findings["classes"]
    if found is None:
        return None
    pseudo, truth = np.array(found["pseudo"]) / found["n"], np.array(found["truth"]) / max(found["known"], 1)
    drawn = np.sort(np.argsort(-np.abs(pseudo - truth), kind="stable")[:most])
    groups = {"pseudo-labels": ("blue", pseudo[drawn].tolist())}
    if found["known"]:
        groups["truth"] = ("grey", truth[drawn].tolist())
    counts = [["class", *groups]]
    for name, *numbers in zip(classes, found["pseudo"], found["truth"], strict=True):
        counts.append([name, *(f"{n:,}" for n in numbers[: len(groups)])])
    return {"names": [classes[k] for k in drawn], "groups": groups, "counts": counts}


def _class_row(of: Numbers) -> list[str]:
    recall = of["recall"] if of["n"] else None  # nothing was measured
    return [of["name"], share(of["precision"]), share(recall), share(of["f1"]), f"{of['n']:,}"]


def confused(findings: Numbers, most: int = 8) -> list[tuple[str, str, int]]:
    """The pairs of classes most often confused: truth, prediction, how often."""
    classes, counts = findings["classes"], np.array(findings["confusion"] or [[0]])
    np.fill_diagonal(counts, 0)
    order = np.argsort(-counts, axis=None, kind="stable")[:most]
    pairs = zip(*np.unravel_index(order, counts.shape), strict=True)
    return [(classes[i], classes[j], int(counts[i, j])) for i, j in pairs if counts[i, j]]


def pictures_of(evidence: Evidence, findings: Numbers) -> dict[int, str]:
    """The images on the page as data URIs; empty for feature vectors or if the data could not be read."""
    predicted = evidence.shown
    if predicted is None or not predicted.dataset.is_images:
        return {}
    wanted = {case["sample"] for case in (findings["disputed"] or []) + (findings["errors"] or [])}
    rows = {number: row for row, number in enumerate(predicted.samples.tolist()) if number in wanted}
    return {number: data_uri(predicted.dataset.inputs[row]) for number, row in rows.items()}


def data_uri(image: NDArray[np.uint8]) -> str:
    """A uint8 image (H, W, C) as a data URI of a PNG."""
    from PIL import Image

    pixels: NDArray[Any] = image[..., 0] if image.shape[2] == 1 else image
    picture = Image.fromarray(pixels)
    picture.thumbnail((LARGEST, LARGEST))
    file = io.BytesIO()
    picture.save(file, format="PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode('ascii')}"
