"""``normatch demo``: four methods on the same 40 labelled digits."""

from pathlib import Path

from normatch.arguments import parse
from normatch.demo import run_demo

__all__ = ["main"]


def main(argv: list[str]) -> None:
    parse(verb, "demo", argv)


def verb(seed: int = 0, out: Path | None = None, steps: int | None = None) -> None:
    """Supervised training, LabelSpreading, FixMatch and NorMatch on the same 40 labelled digits.

    Args:
        seed: Draws the labels and the held-out digits.
        out: New folder for the runs; by default they are not kept.
        steps: Training steps of each method; the recipe's by default.
    """
    run_demo(seed, out, steps)
