"""The page of a report: one self-contained HTML file, made of sections."""

import json
from collections.abc import Iterable
from html import escape
from importlib.resources import files
from typing import Any

import normatch
from normatch.config import to_json
from normatch.report.charts import chart_style
from normatch.report.charts.svg import element
from normatch.report.findings import Findings
from normatch.report.markup import section
from normatch.report.sections import cases, classes, confidence, curves, flow, headline, repeat

__all__ = ["page", "shell"]

TITLES = {
    "learning": "How it learned",
    "pseudo": "Pseudo-labels",
    "balance": "Class balance",
    "classes": "Classes",
    "calibration": "Calibration",
    "latents": "The flow's space",
    "disputed": "Disputed items",
    "errors": "Confident errors",
    "pictures": "Pictures",
    "repeat": "How to repeat it",
    "left-out": "Not on this page",
}


def page(findings: Findings, pictures: dict[int, str]) -> str:
    """The report of one run."""
    bodies = {
        "learning": curves.learning(findings),
        "pseudo": curves.pseudo_labels(findings),
        "balance": classes.balance(findings),
        "classes": classes.classes(findings),
        "calibration": confidence.calibration(findings),
        "latents": flow.latents(findings),
        "disputed": cases.disputed(findings, pictures),
        "errors": cases.errors(findings, pictures),
        "repeat": repeat.repeat(findings),
        "left-out": repeat.left_out(findings, TITLES),
    }
    title = f"{findings.name}, {findings.method}"
    top = headline.headline(findings) + (headline.warnings(findings) or "")
    return shell(title, top, ((name, TITLES[name], body) for name, body in bodies.items() if body), to_json(findings))


def shell(title: str, top: str, sections: Iterable[tuple[str, str, str]], numbers: Any) -> str:
    """A whole page: style, contents, sections, and all its numbers as JSON in the element with the id ``numbers``."""
    shown = list(sections)
    links = (element("li", element("a", escape(heading), href=f"#{name}")) for name, heading, _ in shown)
    body = element(
        "main",
        top,
        element("nav", element("ul", *links), aria_label="Contents"),
        *(section(name, heading, markup) for name, heading, markup in shown),
        element("footer", f"Made by normatch {normatch.__version__}. All numbers of this page are in it as JSON."),
    )
    style = chart_style() + files("normatch.report").joinpath("style.css").read_text(encoding="utf-8")
    # A "<" inside the data could end the script element; in JSON it can be escaped.
    data = json.dumps(numbers, allow_nan=False).replace("<", "\\u003c")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n{body}\n"
        f'<script type="application/json" id="numbers">{data}</script>\n</body>\n</html>\n'
    )
