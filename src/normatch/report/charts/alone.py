"""Charts as standalone SVG files, including colours for light and dark mode and the legend."""

import re
from collections.abc import Sequence
from importlib.resources import files

from normatch.report.charts.lines import Series
from normatch.report.charts.svg import element, label

__all__ = ["alone", "chart_style"]

ROW, LETTER, GAP, SWATCH = 20, 6.4, 18, 30
"""Sizes in the legend: height of a row, approximate width of a letter, space between entries, room for the line."""


def chart_style() -> str:
    """The style sheet of the charts."""
    return files("normatch.report.charts").joinpath("charts.css").read_text(encoding="utf-8")


def alone(chart: str, series: Sequence[Series] = ()) -> str:
    """An SVG file of ``chart``, with the names of ``series`` above it."""
    found = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', chart)
    if found is None:
        raise ValueError("a chart has a viewBox that begins at 0 0")
    width, height = float(found[1]), float(found[2])
    entries, rows = _legend(series, width)
    top = 8 + ROW * rows
    # Some browsers use the attributes of a nested SVG, others its style, so both are set.
    inner = chart.replace("<svg ", f'<svg y="{top}" width="{width:g}" height="{height:g}" ', 1)
    rules = f"svg {{ font-family: system-ui, sans-serif; }} .chart {{ width: {width:g}px; height: {height:g}px; }}"
    ground = element("rect", width=width, height=height + top, rx=6, style="fill: var(--card)")
    return element(
        "svg",
        element("style", chart_style() + rules),
        ground,
        *entries,
        inner,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:g} {height + top:g}",
        width=2 * width,
    )


def _legend(series: Sequence[Series], width: float) -> tuple[list[str], int]:
    """The entries of the legend, as many per row as fit, and the number of rows."""
    entries, x, row = [], 12.0, 0
    for s in series:
        needs = SWATCH + LETTER * len(s.name)
        if x > 12 and x + needs > width:
            x, row = 12.0, row + 1
        y = 16 + ROW * row
        line = element("line", x1=x, x2=x + 22, y1=y - 4, y2=y - 4, class_="line", stroke_dasharray=s.dash)
        entries.append(element("g", line, label(x + SWATCH, y, s.name), style=f"--ink: var(--{s.ink})"))
        x += needs + GAP
    return entries, row + 1 if series else 0
