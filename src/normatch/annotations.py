"""The annotations that a config's field may have: those whose values can be stored as JSON and checked."""

import dataclasses
import math
import types
import typing
from pathlib import Path
from typing import Any, Literal

__all__ = ["STORABLE", "elements", "fits", "is_finite", "kinds", "remedy", "storable", "word"]

UNIONS = (types.UnionType, typing.Union)
"""The origins of ``X | Y`` and of ``Union[X, Y]`` or ``Optional[X]``."""

PLAIN = (bool, int, float, str)
"""The types of which a field may have several: each is its own kind of value in JSON."""

STORABLE = (
    "annotate it as bool, int, float, str, a union of these, Literal, Path, a tuple or list of these, any of them or "
    "None, or a dataclass"
)
"""The remedy for a field of any other type."""


def storable(hint: Any) -> bool:
    """Whether any value of this annotation can be restored from JSON: for Path | str, say, text could be either."""
    found = kinds(hint)
    if len(found) != 1:
        return all(h in PLAIN or typing.get_origin(h) is Literal for h in found)
    (only,) = found
    if typing.get_origin(only) in (tuple, list):
        return all(h is ... or storable(h) for h in typing.get_args(only))
    return only in PLAIN or only is Path or typing.get_origin(only) is Literal


def fits(given: Any, hint: Any) -> bool:
    """Whether a value has the annotated type; an int is a float too, but a bool, which Python counts as int, is not."""
    kind = typing.get_origin(hint)
    if kind in UNIONS:
        return any(fits(given, h) for h in typing.get_args(hint))
    if kind is Literal:
        return given in typing.get_args(hint)
    if kind in (tuple, list):
        hints = elements(hint, len(given)) if isinstance(given, kind) else None
        return hints is not None and len(hints) == len(given) and all(map(fits, given, hints))
    if kind is dict:
        of_name, of_value = typing.get_args(hint)
        return isinstance(given, dict) and all(fits(n, of_name) and fits(v, of_value) for n, v in given.items())
    if isinstance(given, bool) and hint in (int, float):
        return False
    if dataclasses.is_dataclass(hint):
        return type(given) is hint  # another dataclass would be read back as this one
    return isinstance(given, int | float if hint is float else hint)


def kinds(hint: Any) -> list[Any]:
    """The annotations of the values other than None: several for a union."""
    return [h for h in _members(hint) if h is not type(None)]


def _members(hint: Any) -> tuple[Any, ...]:
    """The members of a union; any other annotation is its own only member."""
    return typing.get_args(hint) if typing.get_origin(hint) in UNIONS else (hint,)


def elements(hint: Any, length: int) -> tuple[Any, ...]:
    """The annotations of the elements of a tuple or list with this annotation and length."""
    inner = typing.get_args(hint)
    return inner[:1] * length if typing.get_origin(hint) is list or inner[-1:] == (...,) else inner


def is_finite(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(map(is_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def remedy(hint: Any) -> str:
    """What to give for a field of this annotation."""
    members = _members(hint)
    if not any(typing.get_origin(h) is Literal for h in members):
        return f"give {' or '.join(map(word, members))}"
    choices = [typing.get_args(h) if typing.get_origin(h) is Literal else (word(h),) for h in members]
    return f"choose from {', '.join(str(c) for part in choices for c in part)}"


def word(hint: Any) -> str:
    if hint is type(None):
        return "None"
    return str(hint) if typing.get_origin(hint) or not isinstance(hint, type) else hint.__name__
