"""Charts as SVG, drawn here because a plotting library would weigh more than everything else on the page.

Colours are names in ``charts.css``, which has them for light and dark mode.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from numbers import Real
from typing import Any

import numpy as np
from markupsafe import Markup, escape

from normatch.metrics import Bin
from normatch.text import on_one_line, percent

__all__ = ["COLORS", "FIGURE_3", "FIGURE_4", "IntervalRow", "Series", "alone", "interval_chart", "line_chart"]

Point = tuple[float, float]

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 400, 42, 14, 12, 38
"""Width and margins of most charts, in pixels of an SVG that scales with its column."""

COLORS = 10
"""Number of colours for classes and groups, c0 to c9; more of them reuse the colours with another shape or dash."""

SHAPES = ("M-3 0a3 3 0 1 0 6 0a3 3 0 1 0 -6 0z", "M-3 -3h6v6h-6z", "M0 -3.6L3.4 2.6h-6.8z", "M0 -4L4 0L0 4L-4 0z")
"""Marks of points."""

FIGURE_3 = {
    "pseudo/trusted": ("trusted", "blue", None),
    "pseudo/confident": ("confidence above 0.95", "green", "6 3"),
    "pseudo/correct": ("correct", "red", None),
}
"""The curves of the paper's Figure 3: name in the legend, colour and dash of each metric."""
FIGURE_4 = {
    "pseudo/accuracy_trusted": ("accuracy of the trusted", "blue", None),
    "pseudo/accuracy_distrusted": ("accuracy of the distrusted", "red", None),
    "pseudo/accuracy_confident": ("accuracy above 0.95", "green", "6 3"),
    "pseudo/weight_distrusted": ("weight of the distrusted", "text", None),
    "pseudo/uncertainty": ("uncertainty of the head", "grey", "2 3"),
    "pseudo/uncertainty_auxiliary": ("uncertainty of the {second}", "brown", "2 3"),
}


def sheet(name: str) -> Markup:
    """A style sheet of this folder."""
    return Markup(files("normatch.report").joinpath(name).read_text(encoding="utf-8"))


def clean(value: object) -> Markup:
    """Text as harmless markup: escaped, and control characters, which names may have, made visible.

    >>> clean("<b>\\x1b[2J"), clean(Markup("<b>"))
    (Markup('&lt;b&gt;\\\\x1b[2J'), Markup('<b>'))
    """
    return value if isinstance(value, Markup) else escape(on_one_line(str(value)))


def tag(element: str, *children: str, **attributes: object) -> Markup:
    """Markup of an element. ``class_`` becomes class, other underscores become hyphens; None leaves an attribute out.

    >>> tag("text", "a < b", x=1.0, text_anchor="end")
    Markup('<text x="1" text-anchor="end">a &lt; b</text>')
    """
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{clean(pixels(value) if isinstance(value, Real) else value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{element}{written}>{''.join(map(clean, children))}</{element}>")


def pixels(value: Any) -> str:
    """A length with at most one decimal."""
    return f"{value:.1f}".removesuffix(".0")


def label(x: float, y: float, text: str, anchor: str = "middle", **attributes: object) -> Markup:
    return tag("text", text, x=x, y=y, text_anchor=anchor, **attributes)


def line(x1: float, y1: float, x2: float, y2: float, class_: str = "grid") -> Markup:
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def shape(element: str, tooltip: str, class_: str, **attributes: object) -> Markup:
    return tag(element, tag("title", tooltip), **attributes, class_=class_)


def ink(color: str) -> str:
    return f"--ink: var(--{color})"


def picture(width: float, height: float, title: str, description: str, *body: str, class_: str = "chart") -> Markup:
    """The root element, with title and description for screen readers."""
    box = f"0 0 {pixels(width)} {pixels(height)}"
    said = (tag("title", title), tag("desc", description))
    return tag("svg", *said, *body, class_=class_, viewBox=box, role="img", aria_label=f"{title}. {description}")


def shorten(name: str, longest: int) -> str:
    return name if len(name) <= longest else name[: longest - 1] + "…"


def axis(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    """The linear map from the values low … high to the positions start … end."""
    return lambda value: start + (value - low) / (high - low) * (end - start)


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten that enclose low … high, roughly ``about`` of them.

    >>> ticks(0.13, 0.97)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    if high - low <= max(1e-100, 1e-9 * max(abs(low), abs(high))):
        high = low + (abs(low) if abs(low) > 1e-100 else 1.0)
    rough = (high - low) / about
    power = 10 ** math.floor(math.log10(rough))
    step = min((m * power for m in (1, 2, 5, 10)), key=lambda s: abs(math.log(s / rough)))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    digits = max(0, 1 - math.floor(math.log10(step)))
    return [round(i * step, digits) for i in range(first, last + 1)]


def compact(value: float) -> str:
    """A number in few characters.

    >>> compact(250), compact(12_000), compact(1_048_576), compact(0.025)
    ('250', '12k', '1.05M', '0.025')
    """
    if abs(value) >= 1e6:
        return f"{value / 1e6:.3g}M"
    return f"{value / 1e3:.3g}k" if abs(value) >= 1e4 else f"{value:g}"


@dataclass(frozen=True)
class Series:
    """A named curve; a value is None where nothing was counted."""

    name: str
    points: Sequence[tuple[float, float | None]]
    color: str
    dash: str | None = None

    @property
    def known(self) -> list[Point]:
        return [(x, y) for x, y in self.points if y is not None]


def line_chart(
    title: str, series: Sequence[Series], *, shares: bool = False, low: float | None = None, high: float | None = None
) -> Markup:
    """Curves over steps. ``shares``: values are percentages. The y-axis includes ``low`` and ``high``."""
    form = percent if shares else compact
    values = [y for s in series for _, y in s.known]
    bottom = min(values if low is None else [low, *values])
    top = max(values if high is None else [high, *values])
    if shares and top - bottom < 0.05:  # the same accuracy throughout: an axis around it, within 0 and 100%
        bottom, top = max(0.0, bottom - 0.05), min(1.0, top + 0.05)
    height, marks, last = 240, ticks(bottom, top), max(x for s in series for x, _ in s.points)
    foot, right = height - BOTTOM, WIDTH - RIGHT
    x_axis, y_axis = axis(0, last, LEFT, right), axis(marks[0], marks[-1], foot, TOP)
    body = [label((LEFT + right) / 2, height - 4, "step")]
    for y in marks:
        body += [line(LEFT, y_axis(y), right, y_axis(y)), label(LEFT - 7, y_axis(y) + 4, form(y), "end")]
    body += [label(x_axis(step), foot + 17, compact(step)) for step in ticks(0, last) if step <= last]
    said = []
    for s in series:
        path, pen = "", "M"
        for x, value in s.points:
            path += f"{pen}{pixels(x_axis(x))} {pixels(y_axis(value))}" if value is not None else ""
            pen = "L" if value is not None else "M"
        drawn = [tag("path", d=path, class_="line", stroke_dasharray=s.dash)]
        for x, y in s.known if len(s.known) <= 60 else []:
            drawn.append(shape("circle", f"{s.name}, step {x:g}: {form(y)}", "dot", cx=x_axis(x), cy=y_axis(y), r=2.5))
        body.append(tag("g", *drawn, style=ink(s.color)))
        ends = [f"{form(y)} at step {x:g}" for x, y in (*s.known[:1], *s.known[-1:])]
        said.append(f"{s.name}: {', '.join(ends) or 'nothing was counted'}.")
    return picture(WIDTH, height, title, " ".join(said), *body)


def share_rows(
    names: Sequence[str], row: float, marks: Sequence[float]
) -> tuple[list[Markup], Callable[[float], float], float]:
    """The frame of a chart of horizontal rows of shares: names, grid, the x-axis, and the chart's height."""
    left = 16 + 7 * max(map(len, names))
    x_axis, foot = axis(marks[0], marks[-1], left, WIDTH - 22), 6 + row * len(names)
    body = [label(left - 8, 10 + (i + 0.5) * row, name, "end") for i, name in enumerate(names)]
    for mark in marks:
        body += [line(x_axis(mark), 6, x_axis(mark), foot), label(x_axis(mark), foot + 17, percent(mark))]
    return body, x_axis, foot + 26


def bar_chart(title: str, names: Sequence[str], groups: dict[str, tuple[str, Sequence[float]]]) -> Markup:
    """For each name a bar for each group; a group is its colour and its shares."""
    row = 9 * len(groups) + 9
    marks = ticks(0, max(max(shares) for _, shares in groups.values()), 4)
    body, x_axis, height = share_rows([shorten(name, 18) for name in names], row, marks)
    said = [f"{name}:" for name in names]
    for g, (group, (color, shares)) in enumerate(groups.items()):
        for i, share in enumerate(shares):
            place = {"x": x_axis(0), "y": 10 + i * row + 9 * g, "width": x_axis(share) - x_axis(0), "height": 8}
            body.append(shape("rect", f"{names[i]}, {group}: {share:.1%}", "share", **place, style=ink(color)))
            said[i] += f"{',' * (g > 0)} {group} {share:.1%}"
    return picture(WIDTH, height, title, ". ".join(said) + ".", *body)


@dataclass(frozen=True)
class IntervalRow:
    """A share and its confidence interval."""

    name: str
    share: float
    interval: tuple[float, float]
    color: str

    def __str__(self) -> str:
        return f"{self.name}: {self.share:.2%}, between {self.interval[0]:.2%} and {self.interval[1]:.2%}."


def interval_chart(title: str, rows: Sequence[IntervalRow]) -> Markup:
    """A dot for each share, on a bar that is its confidence interval."""
    low, high = min(row.interval[0] for row in rows), max(row.interval[1] for row in rows)
    spare = max(0.0, 0.02 - (high - low)) / 2  # so that small differences look small
    marks = ticks(max(0.0, low - spare), min(1.0, high + spare), 4)
    # Long names of runs differ at their ends.
    names = [row.name if len(row.name) <= 24 else f"…{row.name[-23:]}" for row in rows]
    body, x_axis, height = share_rows(names, 30, marks)
    for i, row in enumerate(rows):
        y = 6 + (i + 0.5) * 30
        bar = line(x_axis(max(row.interval[0], marks[0])), y, x_axis(min(row.interval[1], marks[-1])), y, "interval")
        body.append(
            tag("g", bar, shape("circle", str(row), "dot", cx=x_axis(row.share), cy=y, r=5), style=ink(row.color))
        )
    return picture(WIDTH, height, title, " ".join(map(str, rows)), *body, class_="chart top")


def matrix_chart(table: Sequence[Sequence[int]], classes: Sequence[str]) -> Markup:
    """A confusion matrix: rows are the truth, columns the prediction; a cell's opacity is its share of the row."""
    counts, k = np.asarray(table), len(classes)
    cell = min(WIDTH / k, 60)
    side, size, gap = cell * k, min(12.0, cell * 0.8), max(cell - 1, 0.8 * cell)
    names = [shorten(name, 12) for name in classes] if k <= 40 else []
    longest = max(map(len, names), default=0)
    margin = 30 + 8 * longest
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    worst = max(float((shares * (1 - np.eye(k))).max()), 1e-9)
    body = [tag("rect", x=margin, y=margin, width=side, height=side, class_="ground")]
    for i, j in np.argwhere(counts):
        share, x, y = shares[i, j], margin + j * cell, margin + i * cell
        kind, opacity = ("right", share) if i == j else ("wrong", 0.15 + 0.6 * share / worst)
        said = f"{counts[i, j]} of class {classes[i]} called {classes[j]}: {share:.1%}"
        body.append(shape("rect", said, kind, x=x, y=y, width=gap, height=gap, fill_opacity=f"{opacity:.2f}"))
        if k <= 16:
            strong = "count on" if i == j and share > 0.5 else "count"
            body.append(label(x + cell / 2, y + cell / 2 + size / 3, str(counts[i, j]), class_=strong))
    font = f"font-size: {size:.1f}px"
    for i, name in enumerate(names):
        at = margin + (i + 0.5) * cell
        body.append(label(margin - 6, at + size / 3, name, "end", style=font))
        if longest <= 2:
            body.append(label(at, margin - 6, name, style=font))
        else:
            turn = f"rotate(-90 {pixels(at + size / 3)} {margin - 6})"
            body.append(label(at + size / 3, margin - 6, name, "start", style=font, transform=turn))
    middle = margin + side / 2
    body += [label(middle, 12, "prediction"), label(12, middle, "truth", transform=f"rotate(-90 12 {middle:.1f})")]
    summary = f"{np.trace(counts)} of {counts.sum()} lie on the diagonal, where the prediction is the truth."
    width = max(margin + side + 4, WIDTH)
    drawn = tag("g", *body, transform=f"translate({(width - margin - side) / 2:.1f} 0)")
    return picture(width, margin + side + 4, "Confusion matrix", summary, drawn)


def reliability_chart(title: str, bins: Sequence[Bin]) -> Markup:
    """Bars of accuracy by confidence, each with a tick at its mean confidence, and below its number of samples."""
    right, strip = WIDTH - RIGHT, 40
    x_axis, y_axis = axis(0, 1, LEFT, right), axis(0, 1, TOP + 200, TOP)
    foot, most = TOP + 212 + strip, max(b.n for b in bins)
    body, said = [line(LEFT, foot, right, foot), label(LEFT - 7, foot - strip + 10, "n", "end")], []
    for mark in (0.0, 0.25, 0.5, 0.75, 1.0):
        body += [line(LEFT, y_axis(mark), right, y_axis(mark)), label(LEFT - 7, y_axis(mark) + 4, percent(mark), "end")]
        body += [label(x_axis(mark), foot + 17, percent(mark))]
    for b in bins:
        if b.accuracy is None or b.confidence is None:
            continue
        x, end, level, n = x_axis(b.low) + 1, x_axis(b.high) - 1, y_axis(b.confidence), strip * b.n / most
        bar = {"y": y_axis(b.accuracy), "height": max(y_axis(0) - y_axis(b.accuracy), 1)}
        strength = f"{0.2 + 0.65 * (b.n / most) ** 0.25:.2f}"  # bars of few samples are pale, because they say little
        said.append(f"{b.confidence:.1%} confident, {b.accuracy:.1%} right ({b.n}).")
        body += [
            shape("rect", said[-1], "bar", x=x, width=end - x, **bar, fill_opacity=strength),
            line(x, level, end, level, "claim"),
            shape("rect", said[-1], "quiet", x=x, width=end - x, y=foot - n, height=n),
        ]
    body += [line(LEFT, y_axis(0), right, y_axis(1), "ideal")]
    body += [label((LEFT + right) / 2, foot + BOTTOM - 4, "confidence")]
    return picture(WIDTH, foot + BOTTOM, title, " ".join(said), *body)


def latent_chart(latents: dict[str, Any], classes: Sequence[str]) -> Markup:
    """Latents in a plane, with the names of classes at their centres, and the flow's Gaussians: a cross and a circle of
    radius σ. Both axes have the same scale, so that circles stay circles."""
    width, edge = 560, 24
    points, means = latents["points"], latents["means"]
    corner, far = np.min([*points, *means], 0), np.max([*points, *means], 0)
    span = np.maximum(far - corner, 1e-9)
    height = float(np.clip(width * span[1] / span[0], 260, 460))
    unit = min((width - 2 * edge) / span[0], (height - 2 * edge) / span[1])

    def place(point: Point) -> Point:
        x, y = np.subtract(point, (corner + far) / 2) * unit
        return float(width / 2 + x), float(height / 2 - y)

    body, crosses = [], []
    for k, (mean, scale) in enumerate(zip(means, latents["scales"], strict=True)):
        (x, y), said = place(mean), f"class {classes[k]}: mean and σ = {scale:.3g} of its Gaussian"
        color = ink(f"c{k % COLORS}")
        body.append(shape("circle", said, "spread", cx=x, cy=y, r=max(scale * unit, 2), style=color))
        crosses.append(tag("path", d=f"M{x - 4:.1f} {y:.1f}h8M{x:.1f} {y - 4:.1f}v8", class_="mean"))
    for point, k, sample in zip(points, latents["labels"], latents["samples"], strict=True):
        at = "translate({:.1f} {:.1f})".format(*place(point))
        look = {"d": SHAPES[k // COLORS % len(SHAPES)], "style": ink(f"c{k % COLORS}")}
        body.append(shape("path", f"{sample}, class {classes[k]}", "point", transform=at, **look))
    if len(classes) <= 12:
        named = [
            (shorten(n, 12), place(centre)) for n, centre in zip(classes, latents["centres"], strict=True) if centre
        ]
        names = [name for name, _ in named]
        # Above the mean, so that a name does not cover the only point of its class.
        places = apart(names, [(x, y - 14) for _, (x, y) in named], height)
        crosses += [label(x, y + 6, name, class_="name") for name, (x, y) in zip(names, places, strict=True)]
    said = f"{len(points)} points of {len(classes)} classes, with the names of the classes at their centres."
    return picture(width, height, "Latents of the flow in two dimensions", said, *body, *crosses)


def apart(
    names: Sequence[str], places: Sequence[Point], height: float, letter: float = 11.0, row: float = 20
) -> list[Point]:
    """The places of names, moved up or down only as far as it takes that none covers another or leaves the chart."""
    xs, ys = [x for x, _ in places], [y for _, y in places]
    for sign, limit in ((1, row / 2), (-1, height - row / 2)):
        # From one edge to the other, each name moves past those before it that it would cover.
        done: list[int] = []
        for i in sorted(range(len(names)), key=lambda i: sign * ys[i]):
            ys[i] = sign * max(sign * ys[i], sign * limit)
            for other in done:
                close = abs(xs[i] - xs[other]) < (len(names[i]) + len(names[other])) * letter / 2
                if close and sign * (ys[i] - ys[other]) < row:
                    ys[i] = ys[other] + sign * row
            done.append(i)
    return list(zip(xs, ys, strict=True))


def alone(chart: str, series: Sequence[Series] = ()) -> Markup:
    """An SVG file of ``chart`` with colours for light and dark mode, and the names of ``series`` above it."""
    found = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', chart)
    assert found is not None
    width, height = float(found[1]), float(found[2])
    x, y, entries = 12.0, 16, []
    for s in series:
        needs = 30 + 6.4 * len(s.name)
        if x > 12 and x + needs > width:
            x, y = 12.0, y + 20
        stroke = tag("line", x1=x, x2=x + 22, y1=y - 4, y2=y - 4, class_="line", stroke_dasharray=s.dash)
        entries.append(tag("g", stroke, label(x + 30, y, s.name, "start"), style=ink(s.color)))
        x += needs + 18
    top = y + 12 if series else 8
    # Some browsers use the attributes of a nested SVG, others its style, so both are set.
    inner = Markup(str(chart).replace("<svg ", f'<svg y="{top}" width="{width:g}" height="{height:g}" ', 1))
    rules = f"svg {{ font-family: system-ui, sans-serif; }} .chart {{ width: {width:g}px; height: {height:g}px; }}"
    ground = tag("rect", width=width, height=height + top, rx=6, style="fill: var(--card)")
    style = tag("style", sheet("charts.css") + Markup(rules))
    box = f"0 0 {width:g} {height + top:g}"
    return tag("svg", style, ground, *entries, inner, xmlns="http://www.w3.org/2000/svg", viewBox=box, width=2 * width)
