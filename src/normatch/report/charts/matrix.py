"""The confusion matrix: right answers in one colour, wrong ones in another."""

from collections.abc import Sequence

import numpy as np

from normatch.report.charts.svg import element, label, picture, shorten, tip

__all__ = ["matrix_chart"]

SIDE, LARGEST_CELL = 400, 60
MOST_NUMBERS = 16
"""Up to this many classes, the counts are written into the cells."""
MOST_NAMES = 40
"""Up to this many classes, rows and columns are named."""
LONGEST_NAME = 12


def matrix_chart(table: Sequence[Sequence[int]], classes: Sequence[str]) -> str:
    """A confusion matrix: rows are the truth, columns the answer; the opacity of a cell is its share of the row."""
    counts = np.asarray(table)
    k = len(classes)
    cell = min(SIDE / k, LARGEST_CELL)
    side = cell * k
    names = [shorten(name, LONGEST_NAME) for name in classes] if k <= MOST_NAMES else []
    margin = 30 + (8 * max(map(len, names)) if names else 0)
    size = min(12.0, cell * 0.8)
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    worst = max(float((shares * (1 - np.eye(k))).max()), 1e-9)
    body = [element("rect", x=margin, y=margin, width=side, height=side, class_="ground")]
    for i, j in np.argwhere(counts):
        right, share = i == j, float(shares[i, j])
        strength = share if right else 0.15 + 0.6 * share / worst
        rect = element(
            "rect",
            tip(f"{counts[i, j]} of class {classes[i]} called {classes[j]}: {share:.1%}"),
            x=margin + j * cell,
            y=margin + i * cell,
            width=max(cell - 1, 0.8 * cell),
            height=max(cell - 1, 0.8 * cell),
            class_="right" if right else "wrong",
            fill_opacity=f"{strength:.2f}",
        )
        body.append(rect)
        if k <= MOST_NUMBERS:
            strong = " on" if right and share > 0.5 else ""
            where = margin + (j + 0.5) * cell, margin + (i + 0.5) * cell + size / 3
            body.append(label(*where, str(counts[i, j]), text_anchor="middle", class_=f"count{strong}"))
    body += [_named(i, name, margin, cell, size, turned=len(max(names, key=len)) > 2) for i, name in enumerate(names)]
    middle = margin + side / 2
    body.append(label(middle, 12, "answer", text_anchor="middle", class_="axis"))
    body.append(
        label(12, middle, "truth", text_anchor="middle", class_="axis", transform=f"rotate(-90 12 {middle:.1f})")
    )
    total, hits = int(counts.sum()), int(np.trace(counts))
    words = f"{hits} of {total} items lie on the diagonal, where the answer is the truth."
    width = max(margin + side + 4, SIDE)
    shift = (width - margin - side) / 2
    drawn = element("g", *body, transform=f"translate({shift:.1f} 0)")
    return picture(width, margin + side + 4, "Confusion matrix", words, drawn)


def _named(i: int, name: str, margin: float, cell: float, size: float, turned: bool) -> str:
    """A class's name next to its row and above its column, there rotated if ``turned``."""
    at, style = margin + (i + 0.5) * cell, f"font-size: {size:.1f}px"
    row = label(margin - 6, at + size / 3, name, text_anchor="end", style=style)
    if not turned:
        return row + label(at, margin - 6, name, text_anchor="middle", style=style)
    turn = f"rotate(-90 {at + size / 3:.1f} {margin - 6:.1f})"
    return row + label(at + size / 3, margin - 6, name, text_anchor="start", style=style, transform=turn)
