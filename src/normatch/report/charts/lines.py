"""Curves over training steps."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from normatch.report.charts.axes import Axis, compact, round_ticks
from normatch.report.charts.svg import element, label, number, picture, tip
from normatch.text import percent

__all__ = ["Series", "legend", "line_chart"]

WIDTH, HEIGHT = 400, 240
LEFT, RIGHT, TOP, BOTTOM = 42, 14, 12, 38
MOST_DOTS = 60
"""A curve with more points than this is drawn without dots."""
FLAT = 0.05
"""Shares that differ by less are drawn as flat: the axis reaches this far above and below."""


@dataclass(frozen=True)
class Series:
    """A named curve. ``ink`` is the name of a colour in the style sheet, ``dash`` the pattern of the line."""

    name: str
    points: Sequence[tuple[float, float | None]]
    ink: str
    dash: str | None = None

    @property
    def known(self) -> list[tuple[float, float]]:
        return [(x, y) for x, y in self.points if y is not None]


def line_chart(
    title: str, series: Sequence[Series], *, shares: bool = False, low: float | None = None, high: float | None = None
) -> str:
    """A chart of curves over steps. ``shares``: values as percentages; the y-axis includes ``low`` and ``high``."""
    form = percent if shares else compact
    values = [y for s in series for _, y in s.known]
    bottom = min(values) if low is None else min(low, *values)
    top = max(values) if high is None else max(high, *values)
    if shares and top - bottom < FLAT:
        # One evaluation, or the same accuracy throughout: an axis around it, and none above 100%.
        bottom, top = max(0.0, bottom - FLAT), min(1.0, top + FLAT)
    ticks = round_ticks(bottom, top)
    last = max(x for s in series for x, _ in s.points)
    steps = round_ticks(0, last)
    x_axis = Axis(0, last, LEFT, WIDTH - RIGHT)
    y_axis = Axis(ticks[0], ticks[-1], HEIGHT - BOTTOM, TOP)
    body = [_grid_line(y_axis(t), form(t)) for t in ticks]
    body += [
        label(x_axis(s), HEIGHT - BOTTOM + 17, compact(s), text_anchor="middle", class_="tick")
        for s in steps
        if s <= last
    ]
    body.append(label((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 4, "step", text_anchor="middle", class_="axis"))
    body += [_curve(s, x_axis, y_axis, form) for s in series]
    return picture(WIDTH, HEIGHT, title, " ".join(_in_words(s, form) for s in series), *body)


def legend(series: Sequence[Series]) -> str:
    """The names of the curves, each next to a sample of its line."""

    def entry(s: Series) -> str:
        line = element("line", x1=0, x2=24, y1=5, y2=5, class_="line", stroke_dasharray=s.dash)
        swatch = element("svg", line, viewBox="0 0 24 10", width=24, height=10, role="img", aria_label="line of")
        return element("li", swatch, escape(s.name), style=f"--ink: var(--{s.ink})")

    return element("ul", *map(entry, series), class_="legend")


def _curve(series: Series, x_axis: Axis, y_axis: Axis, form: Callable[[float], str]) -> str:
    path, pen_down = [], False
    for x, y in series.points:
        if y is not None:
            path.append(f"{'L' if pen_down else 'M'}{number(x_axis(x))} {number(y_axis(y))}")
        pen_down = y is not None
    body = [element("path", d="".join(path), class_="line", stroke_dasharray=series.dash)]
    known = series.known
    if len(known) <= MOST_DOTS:
        body += [
            element(
                "circle", tip(f"{series.name}, step {x:g}: {form(y)}"), cx=x_axis(x), cy=y_axis(y), r=2.5, class_="dot"
            )
            for x, y in known
        ]
    return element("g", *body, style=f"--ink: var(--{series.ink})")


def _grid_line(y: float, words: str) -> str:
    line = element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="grid")
    return line + label(LEFT - 7, y + 4, words, text_anchor="end", class_="tick")


def _in_words(series: Series, form: Callable[[float], str]) -> str:
    known = series.known
    if not known:
        return f"{series.name}: nothing was counted."
    (first, start), (last, end) = known[0], known[-1]
    return f"{series.name}: {form(start)} at step {first:g}, {form(end)} at step {last:g}."
