"""Rows of words as text: columns for a terminal, tables in Markdown. The first row is the head."""

from collections.abc import Sequence

__all__ = ["aligned", "markdown"]


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """
    >>> aligned([["run", "steps"], ["first", "600"]])
    ['run    steps', 'first  600']
    """
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """
    >>> print(markdown([["run", "steps"], ["first", "600"]]))
    | run | steps |
    | --- | --- |
    | first | 600 |
    """
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], f"| {' | '.join('---' for _ in rows[0])} |", *lines[1:]])
