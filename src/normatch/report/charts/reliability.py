"""Reliability diagrams: accuracy against confidence."""

from collections.abc import Sequence

from normatch.evaluate.metrics import Bin
from normatch.report.charts.axes import Axis
from normatch.report.charts.svg import element, label, picture, tip
from normatch.text import percent

__all__ = ["reliability_chart"]

WIDTH, LEFT, RIGHT, TOP = 400, 42, 14, 12
PLOT, GAP, STRIP, BOTTOM = 200, 12, 40, 38


def reliability_chart(title: str, bins: Sequence[Bin]) -> str:
    """Bars of accuracy by confidence, each with a tick at its mean confidence, and below its number of items."""
    x_axis = Axis(0, 1, LEFT, WIDTH - RIGHT)
    y_axis = Axis(0, 1, TOP + PLOT, TOP)
    foot = TOP + PLOT + GAP + STRIP
    most = max(b.n for b in bins)
    body = []
    for t in (0.0, 0.25, 0.5, 0.75, 1.0):
        body.append(element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y_axis(t), y2=y_axis(t), class_="grid"))
        body.append(label(LEFT - 7, y_axis(t) + 4, percent(t), text_anchor="end", class_="tick"))
        body.append(label(x_axis(t), foot + 17, percent(t), text_anchor="middle", class_="tick"))
    for b in bins:
        if b.accuracy is None or b.confidence is None:
            continue
        x, width = x_axis(b.low) + 1, x_axis(b.high) - x_axis(b.low) - 2
        words = f"{b.n} items of mean confidence {b.confidence:.1%}: {b.accuracy:.1%} right"
        top, height = y_axis(b.accuracy), max(y_axis(0) - y_axis(b.accuracy), 1.0)
        # Bars of few items are drawn pale, because they say little.
        strength = f"{0.2 + 0.65 * (b.n / most) ** 0.25:.2f}"
        place = {"x": x, "y": top, "width": width, "height": height}
        body.append(element("rect", tip(words), **place, class_="bar", fill_opacity=strength))
        level = y_axis(b.confidence)
        body.append(element("line", x1=x, x2=x + width, y1=level, y2=level, class_="claim"))
        share = STRIP * b.n / most
        body.append(
            element("rect", tip(f"{b.n} items"), x=x, y=foot - share, width=width, height=share, class_="quiet")
        )
    body.append(element("line", x1=x_axis(0), y1=y_axis(0), x2=x_axis(1), y2=y_axis(1), class_="ideal"))
    body.append(element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=foot, y2=foot, class_="grid"))
    body.append(label(LEFT - 7, foot - STRIP + 10, "items", text_anchor="end", class_="tick"))
    body.append(label((LEFT + WIDTH - RIGHT) / 2, foot + BOTTOM - 4, "confidence", text_anchor="middle", class_="axis"))
    used = [b for b in bins if b.accuracy is not None and b.confidence is not None]
    words = " ".join(f"{b.confidence:.0%} confident, {b.accuracy:.0%} right ({b.n} items)." for b in used)
    return picture(WIDTH, foot + BOTTOM, title, words, *body)
