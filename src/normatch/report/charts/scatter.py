"""Points of several classes in a plane, with the class means."""

from collections.abc import Callable, Sequence
from html import escape

from normatch.report.charts.svg import element, label, picture, shorten, tip

__all__ = ["apart", "class_legend", "latent_chart"]

WIDTH, LOWEST, HIGHEST, EDGE = 560, 260, 460, 24
INKS = 10
"""Number of colours for classes; further classes reuse the colours with another shape."""
MOST_NAMES, LONGEST_NAME = 12, 12
LETTER, LINE = 9.5, 17.0
"""The width of a letter of a name, on average, and the height of a line."""
SHAPES = ("M-3 0a3 3 0 1 0 6 0a3 3 0 1 0 -6 0z", "M-3 -3h6v6h-6z", "M0 -3.6L3.4 2.6h-6.8z", "M0 -4L4 0L0 4L-4 0z")

Point = tuple[float, float]


def latent_chart(
    points: Sequence[Point],
    labels: Sequence[int],
    items: Sequence[int],
    centres: Sequence[Point | None],
    means: Sequence[Point],
    scales: Sequence[float],
    classes: Sequence[str],
) -> str:
    """A chart of points, class names at the centres of their points, and the flow's Gaussians: crosses with circles of
    radius σ.

    Both axes have the same scale, so that circles stay circles.
    """
    height, place = _frame([*points, *means])
    unit = place((1.0, 0.0))[0] - place((0.0, 0.0))[0]
    body = []
    for k, (mean, scale) in enumerate(zip(means, scales, strict=True)):
        x, y = place(mean)
        words = f"class {classes[k]}: mean and σ = {scale:.3g} of its Gaussian"
        body.append(element("circle", tip(words), cx=x, cy=y, r=max(scale * unit, 2.0), class_="spread", style=_ink(k)))
    for point, k, item in zip(points, labels, items, strict=True):
        x, y = place(point)
        shape = SHAPES[k // INKS % len(SHAPES)]
        words, where = f"item {item}, class {classes[k]}", f"translate({x:.1f} {y:.1f})"
        body.append(element("path", tip(words), d=shape, transform=where, class_="point", style=_ink(k)))
    for x, y in map(place, means):
        body.append(element("path", d=f"M{x - 4:.1f} {y:.1f}h8M{x:.1f} {y - 4:.1f}v8", class_="mean"))
    if len(classes) <= MOST_NAMES:
        names = [shorten(name, LONGEST_NAME) for name, centre in zip(classes, centres, strict=True) if centre]
        places = apart(names, [place(centre) for centre in centres if centre], height)
        for name, (x, y) in zip(names, places, strict=True):
            body.append(label(x, y + 6, name, text_anchor="middle", class_="name"))
    words = f"{len(points)} items of {len(classes)} classes, with the names of the classes at their centres."
    return picture(WIDTH, height, "Latents of the flow in two dimensions", words, *body)


def class_legend(classes: Sequence[str]) -> str:
    """The names of the classes, each next to its mark."""

    def entry(k: int, name: str) -> str:
        mark = element("path", d=SHAPES[k // INKS % len(SHAPES)], class_="point")
        swatch = element("svg", mark, viewBox="-5 -5 10 10", width=14, height=14, role="img", aria_label="mark of")
        return element("li", swatch, escape(shorten(name, LONGEST_NAME)), style=_ink(k))

    return element("ul", *(entry(k, name) for k, name in enumerate(classes)), class_="legend")


def apart(names: Sequence[str], places: Sequence[Point], height: float) -> list[Point]:
    """The places of names, moved up or down only as far as it takes that none covers another or leaves the chart."""
    xs = [x for x, _ in places]
    ys = [y for _, y in places]

    def settle(sign: int, limit: float) -> None:
        """From one edge to the other, move each name past those before it that it would cover."""
        done: list[int] = []
        for i in sorted(range(len(names)), key=lambda i: sign * ys[i]):
            ys[i] = sign * max(sign * ys[i], sign * limit)
            for other in done:
                close = abs(xs[i] - xs[other]) < (len(names[i]) + len(names[other])) * LETTER / 2
                if close and sign * (ys[i] - ys[other]) < LINE:
                    ys[i] = ys[other] + sign * LINE
            done.append(i)

    settle(1, LINE / 2)
    settle(-1, height - LINE / 2)
    return list(zip(xs, ys, strict=True))


def _ink(k: int) -> str:
    return f"--ink: var(--c{k % INKS})"


def _frame(points: Sequence[Point]) -> tuple[float, Callable[[Point], Point]]:
    """The height of the chart, and the map from coordinates to positions, with one scale for both axes."""
    xs, ys = zip(*points, strict=True)
    spans = max(max(xs) - min(xs), 1e-9), max(max(ys) - min(ys), 1e-9)
    height = min(max(WIDTH * spans[1] / spans[0], LOWEST), HIGHEST)
    unit = min((WIDTH - 2 * EDGE) / spans[0], (height - 2 * EDGE) / spans[1])
    centre = (max(xs) + min(xs)) / 2, (max(ys) + min(ys)) / 2

    def place(point: Point) -> Point:
        return WIDTH / 2 + (point[0] - centre[0]) * unit, height / 2 - (point[1] - centre[1]) * unit

    return height, place
