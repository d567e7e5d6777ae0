"""Dataclasses by their annotations: their values are checked, stored as JSON and read back."""

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

from normatch.errors import UserError

__all__ = ["MOST", "fits", "flat", "from_json", "must_fit", "to_json"]

T = TypeVar("T")

UNIONS = (types.UnionType, typing.Union)
"""The origins of ``X | Y`` and of ``Union[X, Y]`` or ``Optional[X]``."""

MOST = 2**31 - 1
"""The largest number of anything: products of two stay within 64 bits."""


def fits(given: Any, hint: Any) -> bool:
    """Whether a value has the annotated type; an int is a float too, but a bool, which Python counts as int, is not."""
    kind = typing.get_origin(hint)
    if kind in UNIONS:
        return any(fits(given, h) for h in typing.get_args(hint))
    if kind is Literal:
        return given in typing.get_args(hint)
    if kind in (tuple, list):
        hints = _elements(hint, len(given)) if isinstance(given, kind) else None
        return hints is not None and len(hints) == len(given) and all(map(fits, given, hints))
    if kind is dict:
        of_name, of_value = typing.get_args(hint)
        return isinstance(given, dict) and all(fits(n, of_name) and fits(v, of_value) for n, v in given.items())
    if isinstance(given, bool) and hint in (int, float):
        return False
    if dataclasses.is_dataclass(hint):
        return isinstance(given, hint)  # type: ignore[arg-type]
    return isinstance(given, int | float if hint is float else hint)


_hints: Callable[[Any], dict[str, Any]] = functools.cache(typing.get_type_hints)
"""The annotations of a dataclass, which take longer to find than all else that is done with a config."""


def must_fit(value: Any, where: str = "") -> None:
    """Raise UserError for a field of a dataclass whose value is not of its type, no choice, not finite or too large."""
    hints = _hints(type(value))
    for f in dataclasses.fields(value):
        name, given, hint = where + f.name, getattr(value, f.name), hints[f.name]
        if not fits(given, hint):
            raise UserError(f"{name} is {given!r}: {_remedy(hint)}")
        for part in given if isinstance(given, tuple | list) else (given,):
            if dataclasses.is_dataclass(part):
                must_fit(part, f"{name}.")
            if isinstance(part, float) and not math.isfinite(part):
                raise UserError(f"{name} is {given}: give a finite number")
            if isinstance(part, int) and abs(part) > MOST and name != "seed":
                raise UserError(f"{name} is {given}: give a whole number up to {MOST:,}")


def to_json(value: Any) -> Any:
    """Dataclasses as plain JSON values."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple | list):
        return [to_json(v) for v in value]
    if isinstance(value, dict):
        return {name: to_json(v) for name, v in value.items()}
    return value


def flat(fields: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested JSON object as one level of dotted names, as in flags: ``optim.lr``."""
    found: dict[str, Any] = {}
    for name, value in fields.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return found


def from_json(kind: type[T], value: dict[str, Any], where: str = "") -> T:
    """The inverse of :func:`to_json`; unknown fields are errors, missing ones take their defaults."""
    kinds = _hints(kind)
    hints = {f.name: kinds[f.name] for f in dataclasses.fields(typing.cast(type[Any], kind))}
    unknown = set(value) - set(hints)
    if unknown:
        raise UserError(f"unknown field {where}{min(unknown)}: choose from {', '.join(sorted(hints)) or 'none'}")
    return kind(**{name: _restored(hints[name], v, f"{where}{name}.") for name, v in value.items()})


def _restored(hint: Any, value: Any, where: str) -> Any:
    """The value of a field with this annotation; one of another type is left for :func:`must_fit`."""
    members = [h for h in _members(hint) if h is not type(None)]
    if value is None or len(members) != 1:
        return value
    (hint,) = members
    kind = typing.get_origin(hint)
    if dataclasses.is_dataclass(hint) and isinstance(value, dict):
        return from_json(typing.cast(type[Any], hint), value, where)
    if hint is Path and isinstance(value, str):
        return Path(value)
    if kind in (tuple, list) and isinstance(value, list) and len(hints := _elements(hint, len(value))) == len(value):
        return kind(_restored(h, v, where) for h, v in zip(hints, value, strict=True))
    return value


def _members(hint: Any) -> tuple[Any, ...]:
    """The members of a union; any other annotation is its own only member."""
    return typing.get_args(hint) if typing.get_origin(hint) in UNIONS else (hint,)


def _elements(hint: Any, length: int) -> tuple[Any, ...]:
    """The annotations of the elements of a tuple or list with this annotation and length."""
    inner = typing.get_args(hint)
    return inner[:1] * length if typing.get_origin(hint) is list or inner[-1:] == (...,) else inner


def _remedy(hint: Any) -> str:
    """What to give for a field of this annotation."""
    words: list[str] = []
    for member in _members(hint):
        if typing.get_origin(member) is Literal:
            words += map(str, typing.get_args(member))
        elif isinstance(member, type) and not typing.get_origin(member):
            words.append("None" if member is type(None) else member.__name__)
        else:
            words.append(str(member))
    several = any(len(typing.get_args(h)) > 1 for h in _members(hint) if typing.get_origin(h) is Literal)
    return f"choose from {', '.join(words)}" if several else f"give {' or '.join(words)}"
