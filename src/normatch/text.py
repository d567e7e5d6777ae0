"""Words and tables as text: aligned columns, Markdown, counts with their nouns, percentages, names on one line."""

import re
from collections.abc import Sequence

__all__ = ["aligned", "counted", "harmless_cell", "markdown", "on_one_line", "percent", "read_cell"]


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines with aligned columns.

    >>> aligned([["run", "steps"], ["first", "600"]])
    ['run    steps', 'first  600']
    """
    rows = [[on_one_line(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def counted(n: int, one: str, many: str | None = None) -> str:
    """A count with its noun, singular or plural.

    >>> counted(1, "image"), counted(3002, "image"), counted(2, "entry", "entries")
    ('1 image', '3,002 images', '2 entries')
    """
    return f"{n:,} {one if n == 1 else many or f'{one}s'}"


def harmless_cell(text: str) -> str:
    """The text as a CSV cell that no spreadsheet takes for a formula: with a quote before it, unless it is a number.

    What begins with quotes already gets one more, so that :func:`read_cell` is its inverse.

    >>> [harmless_cell(text) for text in ("cat", "=1+2", "-1", "-1x", "'@a")]
    ['cat', "'=1+2", '-1', "'-1x", "''@a"]
    """
    if re.match(r"'*[=+\-@\t\r]", text) and not re.fullmatch(r"[+-]?[\d.]+(e[+-]?\d+)?", text, re.IGNORECASE):
        return f"'{text}"
    return text


def read_cell(cell: str) -> str:
    """The text of a CSV cell that :func:`harmless_cell` made.

    >>> [read_cell(cell) for cell in ("cat", "'=1+2", "-1", "''@a")]
    ['cat', '=1+2', '-1', "'@a"]
    """
    return cell[1:] if re.match(r"'+[=+\-@\t\r]", cell) else cell


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """Rows as a Markdown table; the first row is the header.

    >>> print(markdown([["run", "steps"], ["first", "600"]]))
    | run | steps |
    | --- | --- |
    | first | 600 |
    """
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], f"| {' | '.join('---' for _ in rows[0])} |", *lines[1:]])


def on_one_line(text: str) -> str:
    """The text with escapes for what file names may have and a terminal must not get: control characters, marks that
    turn the direction of writing, and bytes that are no text.

    >>> print(on_one_line("no such file: a\\nb.png"))
    no such file: a\\nb.png
    """
    return re.sub(
        r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", lambda found: repr(found[0])[1:-1], text
    )


def percent(value: float) -> str:
    """A share as a percentage with at most one decimal.

    >>> percent(0.5), percent(0.975)
    ('50%', '97.5%')
    """
    return f"{100 * value:.1f}".removesuffix(".0") + "%"
