"""Horizontal bars and intervals: one row per class or run."""

from collections.abc import Sequence
from dataclasses import dataclass

from normatch.report.charts.axes import Axis, round_ticks
from normatch.report.charts.svg import element, label, picture, shorten, tell_apart, tip
from normatch.text import percent

__all__ = ["IntervalRow", "bar_chart", "interval_chart"]

WIDTH, RIGHT, TOP, BOTTOM = 400, 22, 6, 26
LETTER = 7.0
"""Approximate width of a character of a row's name."""
LONGEST_NAME = 18
LEAST_RANGE = 0.02
"""Least range of an axis of shares, so that small differences look small."""


def bar_chart(title: str, names: Sequence[str], groups: dict[str, tuple[str, Sequence[float]]]) -> str:
    """A chart of shares: for each name one bar per group; a group is the name of its colour and the shares."""
    short = [shorten(name, LONGEST_NAME) for name in names]
    left = 12 + LETTER * max(map(len, short))
    bar = 9
    row = bar * len(groups) + 9
    highest = max(max(shares) for _, shares in groups.values())
    ticks = round_ticks(0, highest, 4)
    x_axis = Axis(0, ticks[-1], left, WIDTH - RIGHT)
    foot = TOP + row * len(names)
    body = [_tick(x_axis(t), TOP, foot, percent(t)) for t in ticks]
    for i, name in enumerate(short):
        y = TOP + i * row + 4
        body.append(label(left - 6, y + bar * len(groups) / 2 + 4, name, text_anchor="end", class_="tick"))
        for g, (group, (ink, shares)) in enumerate(groups.items()):
            rect = element(
                "rect",
                tip(f"{names[i]}, {group}: {shares[i]:.1%}"),
                x=left,
                y=y + g * bar,
                width=x_axis(shares[i]) - left,
                height=bar - 1,
                class_="share",
                style=f"--ink: var(--{ink})",
            )
            body.append(rect)
    said = (
        f"{name}: " + ", ".join(f"{group} {shares[i]:.1%}" for group, (_, shares) in groups.items()) + "."
        for i, name in enumerate(names)
    )
    return picture(WIDTH, foot + BOTTOM, title, " ".join(said), *body)


@dataclass(frozen=True)
class IntervalRow:
    """A share and its interval, with its name and the name of its colour."""

    name: str
    share: float
    interval: tuple[float, float]
    ink: str


def interval_chart(title: str, rows: Sequence[IntervalRow]) -> str:
    """A dot for each share, on a bar that is its interval."""
    short = tell_apart([row.name for row in rows], LONGEST_NAME)
    left = 12 + LETTER * max(map(len, short))
    low, high = min(row.interval[0] for row in rows), max(row.interval[1] for row in rows)
    spare = max(0.0, LEAST_RANGE - (high - low)) / 2
    ticks = round_ticks(max(0.0, low - spare), min(1.0, high + spare), 4)
    x_axis = Axis(ticks[0], ticks[-1], left + 6, WIDTH - RIGHT)
    height = 30
    foot = TOP + height * len(rows)
    body = [_tick(x_axis(t), TOP, foot, percent(t)) for t in ticks]
    for i, row in enumerate(rows):
        y = TOP + (i + 0.5) * height
        low, high = map(x_axis, row.interval)
        body.append(label(left - 4, y + 4, short[i], text_anchor="end", class_="tick"))
        marks = element("line", x1=low, x2=high, y1=y, y2=y, class_="interval")
        marks += element("circle", tip(_said(row)), cx=x_axis(row.share), cy=y, r=5, class_="dot")
        body.append(element("g", marks, style=f"--ink: var(--{row.ink})"))
    return picture(WIDTH, foot + BOTTOM, title, " ".join(map(_said, rows)), *body, class_="chart top")


def _said(row: IntervalRow) -> str:
    return f"{row.name}: {row.share:.2%}, between {row.interval[0]:.2%} and {row.interval[1]:.2%}."


def _tick(x: float, top: float, foot: float, words: str) -> str:
    line = element("line", x1=x, x2=x, y1=top, y2=foot, class_="grid")
    return line + label(x, foot + 17, words, text_anchor="middle", class_="tick")
