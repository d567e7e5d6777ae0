"""Check values against annotations: those of a config's fields and of JSON files."""

import dataclasses
import math
import types
import typing
from typing import Any, Literal

__all__ = ["elements", "fits", "is_finite", "kinds", "remedy"]

UNIONS = (types.UnionType, typing.Union)
"""The origins of ``X | Y`` and of ``Union[X, Y]`` or ``Optional[X]``."""


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
    choices = [_words(h) for h in _members(hint)]
    several = any(len(words) > 1 for words in choices)
    words = [word for part in choices for word in part]
    return f"choose from {', '.join(words)}" if several else f"give {' or '.join(words)}"


def _words(hint: Any) -> list[str]:
    if typing.get_origin(hint) is Literal:
        return list(map(str, typing.get_args(hint)))
    if hint is type(None):
        return ["None"]
    return [str(hint) if typing.get_origin(hint) or not isinstance(hint, type) else hint.__name__]
