"""Points of several classes in a plane, with the class means."""

from collections.abc import Callable, Sequence

from normatch.report.charts.svg import element, label, picture, tip

__all__ = ["INKS", "latent_chart"]

WIDTH, HEIGHT, EDGE = 560, 440, 12
INKS = 10
"""Colours of classes; further classes take the colours again with another shape."""
MOST_NAMES = 30
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
    """Points, names at the centres of their classes, and the Gaussians of the flow: a cross with a circle of radius σ.

    Both axes have the same scale, so that a circle stays one.
    """
    place = _frame([*points, *means])
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
    for name, centre in zip(classes, centres, strict=True):
        if centre is not None and len(classes) <= MOST_NAMES:
            x, y = place(centre)
            body.append(label(x, y + 6, name, text_anchor="middle", class_="name"))
    words = f"{len(points)} items of {len(classes)} classes, with the names of the classes at their centres."
    return picture(WIDTH, HEIGHT, "Latents of the flow in two dimensions", words, *body)


def _ink(k: int) -> str:
    return f"--ink: var(--c{k % INKS})"


def _frame(points: Sequence[Point]) -> Callable[[Point], Point]:
    """Coordinates to positions in the picture, one scale for both axes."""
    xs, ys = zip(*points, strict=True)
    spans = max(max(xs) - min(xs), 1e-9), max(max(ys) - min(ys), 1e-9)
    unit = min((WIDTH - 4 * EDGE) / spans[0], (HEIGHT - 4 * EDGE) / spans[1])
    centre = (max(xs) + min(xs)) / 2, (max(ys) + min(ys)) / 2

    def place(point: Point) -> Point:
        return WIDTH / 2 + (point[0] - centre[0]) * unit, HEIGHT / 2 - (point[1] - centre[1]) * unit

    return place
