"""SVG and HTML as text: elements, and the root of a picture with a description for screen readers."""

import itertools
import re
from collections.abc import Sequence
from html import escape

__all__ = ["element", "label", "number", "picture", "shorten", "tell_apart", "tip"]


def element(name: str, *children: str, **attributes: object) -> str:
    """Markup of one element. ``class_`` becomes class, other underscores become hyphens; children are markup."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_value(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{given}>{''.join(children)}</{name}>"


def label(x: float, y: float, words: str, **attributes: object) -> str:
    """A line of text at (x, y)."""
    return element("text", escape(words), x=x, y=y, **attributes)


def tip(words: str) -> str:
    """A tooltip for the enclosing element."""
    return element("title", escape(words))


def picture(width: float, height: float, title: str, description: str, *body: str, class_: str = "chart") -> str:
    """The root element of a drawing that scales with its column, with title and description for screen readers."""
    return element(
        "svg",
        element("title", escape(title)),
        element("desc", escape(description)),
        *body,
        class_=class_,
        viewBox=f"0 0 {number(width)} {number(height)}",
        role="img",
        aria_label=f"{title}. {description}",
    )


def shorten(name: str, longest: int) -> str:
    """The name, cut to ``longest`` characters with an ellipsis.

    >>> shorten("cat", 8), shorten("rhinoceros", 8)
    ('cat', 'rhinoce…')
    """
    return name if len(name) <= longest else name[: longest - 1] + "…"


def tell_apart(names: Sequence[str], longest: int) -> list[str]:
    """The names; if one has more than ``longest`` characters, without the words with which all begin, then cut.

    >>> tell_apart(["cat", "dog"], 8), tell_apart(["run-of-40-seed0", "run-of-40-seed1"], 8)
    (['cat', 'dog'], ['…seed0', '…seed1'])
    """
    words = zip(*(re.split(r"(?<=[-_. /])", name) for name in names), strict=False)
    alike = sum(len(word[0]) for word in itertools.takewhile(lambda word: len(set(word)) == 1, words))
    if alike and len(names) > 1 and max(map(len, names)) > longest:
        names = [f"…{name[alike:]}" for name in names]
    return [shorten(name, longest) for name in names]


def number(value: float) -> str:
    """A number as text with at most one decimal, which is enough for pixels.

    >>> number(3.0), number(2.25), number(-0.01)
    ('3', '2.2', '0')
    """
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def _value(value: object) -> str:
    return number(value) if isinstance(value, float) else str(value)
