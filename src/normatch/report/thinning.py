"""Thin long curves to few points, in two ways: averaged for display, sampled for storage."""

import math
from collections.abc import Iterable
from typing import TypeVar

__all__ = ["MOST_POINTS", "Curve", "averaged", "sampled"]

T = TypeVar("T")

Curve = list[tuple[int, float | None]]
"""(step, value) pairs; the value is None where nothing was counted."""

MOST_POINTS = 300
"""Most points of a curve: more cannot be seen, and would make the page or file of a long run large."""


def averaged(curve: Curve) -> Curve:
    """The curve with groups of neighbours averaged, at the step of the last of each; the last group may be smaller.

    >>> averaged([(step, float(step)) for step in range(1, 602)])[-2:]
    [(600, 599.0), (601, 601.0)]
    """
    size = _size(len(curve))
    groups = [curve[i : i + size] for i in range(0, len(curve), size)]
    return [(group[-1][0], _mean(value for _, value in group)) for group in groups]


def sampled(points: list[T]) -> list[T]:
    """An evenly spaced selection of the points, including the last.

    >>> sampled(list(range(602)))[:2], sampled(list(range(602)))[-1]
    ([1, 4], 601)
    """
    size = _size(len(points))
    return points[(len(points) - 1) % size :: size]


def _size(count: int) -> int:
    """The number of points that become one."""
    return max(1, math.ceil(count / MOST_POINTS))


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
