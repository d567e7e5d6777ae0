"""Building blocks of pages: sections, figures, scrolling tables."""

from collections.abc import Sequence
from html import escape

from normatch.report.charts.svg import element

__all__ = ["cards", "figure", "section", "share", "table", "words"]


def words(text: str, class_: str | None = None) -> str:
    """A paragraph of plain text."""
    return element("p", escape(text), class_=class_)


def share(value: float | None, n: int = 0) -> str:
    """A share in percent: with two decimals if it is of more than a thousand items ``n``; a dash if it is None.

    >>> share(0.9611, 360), share(0.84491, 10_000), share(None)
    ('96.1%', '84.49%', '–')
    """
    return "–" if value is None else f"{value:.2%}" if n > 1000 else f"{value:.1%}"


def section(name: str, title: str, *body: str) -> str:
    """A section of the page with a heading, to which the table of contents links."""
    heading = element("h2", escape(title), id=f"{name}-title")
    return element("section", heading, *body, id=name, aria_labelledby=f"{name}-title")


def figure(title: str, *body: str, note: str | None = None, class_: str | None = None) -> str:
    """A card with a title above and a sentence below; body is markup."""
    caption = element("figcaption", element("strong", escape(title)), *([words(note)] if note else []))
    return element("figure", caption, *body, class_=class_)


def cards(*figures: str) -> str:
    """Figures side by side if there is room, else (as on a phone) one below the other."""
    return element("div", *figures, class_="cards")


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]], *, prose: bool = False) -> str:
    """A table whose rows are named by their first cell. Columns of numbers are right-aligned; ``prose`` wraps lines."""
    kinds = ["n" if i and _is_numbers([row[i] for row in rows]) else None for i in range(len(head))]
    top = element(
        "tr", *(element("th", escape(h), scope="col", class_=kind) for h, kind in zip(head, kinds, strict=True))
    )
    body = (
        element(
            "tr",
            element("th", escape(row[0]), scope="row"),
            *(element("td", escape(cell), class_=kind) for cell, kind in zip(row[1:], kinds[1:], strict=True)),
        )
        for row in rows
    )
    grid = element("table", element("thead", top), element("tbody", *body), class_="prose" if prose else None)
    return element("div", grid, class_="scroll", role="region", aria_label=title, tabindex="0")


def _is_numbers(cells: Sequence[str]) -> bool:
    return all(cell[:1].isdigit() or cell in ("", "–") for cell in cells)
