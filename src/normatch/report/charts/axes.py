"""Axes, and ticks at round numbers."""

import math
from dataclasses import dataclass

__all__ = ["Axis", "compact", "round_ticks"]


TINY = 1e-100
"""Values up to this count as 0."""


@dataclass(frozen=True)
class Axis:
    """A linear map from the values low … high to the positions start … end."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def round_ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten that enclose low … high, roughly ``about`` of them.

    >>> round_ticks(0.13, 0.97)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    >>> round_ticks(0, 700)
    [0, 100, 200, 300, 400, 500, 600, 700]
    """
    if high - low <= max(TINY, 1e-9 * max(abs(low), abs(high))):
        high = low + (abs(low) if abs(low) > TINY else 1.0)
    rough = (high - low) / about
    power = 10 ** math.floor(math.log10(rough))
    step = min((m * power for m in (1, 2, 5, 10)), key=lambda s: abs(math.log(s / rough)))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    digits = max(0, 1 - math.floor(math.log10(step)))
    return [round(i * step, digits) for i in range(first, last + 1)]


def compact(value: float) -> str:
    """A number in few characters.

    >>> compact(0), compact(250), compact(12_000), compact(1_048_576), compact(0.025)
    ('0', '250', '12k', '1.05M', '0.025')
    """
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= 10 * size or (abs(value) >= size and unit == "M"):
            return f"{value / size:.3g}{unit}"
    return f"{value:g}"
