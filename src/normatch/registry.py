"""Registries of things found by name: each module of a package adds what it defines, and plug-ins may add more."""

import difflib
import functools
import importlib
import importlib.metadata
import os
import pkgutil
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from normatch.errors import UserError, reason

__all__ = ["FROM_A_PLUG_IN", "Registry"]

T = TypeVar("T")

PLUGINS = "normatch.plugins"
"""The entry-point group in which an installed package names modules to import as plug-ins."""

FROM_A_PLUG_IN = "if a plug-in defines it, set NORMATCH_PLUGINS to its module"
"""Hint for an unknown name: a run stores names only, not the plug-in modules that define them."""


class Registry(Generic[T]):
    """Maps names to things of one kind; the modules that define them are imported on first use.

    >>> ops: Registry[object] = Registry("op", package="normatch.errors")
    >>> _ = ops.add("identity", lambda x: x)
    >>> ops.names()
    ['identity']
    """

    def __init__(self, kind: str, package: str) -> None:
        self.kind = kind
        self._package = package
        self._things: dict[str, T] = {}
        self._discovered = False

    def add(self, name: str, thing: T) -> T:
        """Add a thing, or replace it by its new definition, as when a notebook's cell is run again."""
        if name in self._things and not _is_redefined(self._things[name], thing):
            places = " and ".join(getattr(thing, "__module__", "?") for thing in (self._things[name], thing))
            raise UserError(f"{self.kind} {name!r} is defined twice, in {places}: give one of them another name")
        self._things[name] = thing
        return thing

    def named(self, name: str) -> Callable[[T], T]:
        """The decorator form of :meth:`add`."""
        return lambda thing: self.add(name, thing)

    def get(self, name: str) -> T:
        self._discover()
        if not isinstance(name, str):
            raise UserError(f"{self.kind} is {name!r}: give a name")
        if name not in self._things:
            close = difflib.get_close_matches(name, self._things, n=1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            raise UserError(
                f"unknown {self.kind} {name!r}{hint}: choose from {', '.join(self.names())}; {FROM_A_PLUG_IN}"
            )
        return self._things[name]

    def names(self) -> list[str]:
        self._discover()
        return sorted(self._things)

    def items(self) -> Iterator[tuple[str, T]]:
        return ((name, self.get(name)) for name in self.names())

    def __contains__(self, name: object) -> bool:
        self._discover()
        return name in self._things

    def _discover(self) -> None:
        if self._discovered:
            return
        # Set first: a module that looks something up while it is imported finds what there is by then.
        self._discovered = True
        try:
            package = importlib.import_module(self._package)
            for module in pkgutil.iter_modules(getattr(package, "__path__", [])):
                importlib.import_module(f"{self._package}.{module.name}")
            _import_plugins()
        except BaseException:
            # Else the next call would answer without what could not be imported.
            self._discovered = False
            raise


def _is_redefined(old: object, new: object) -> bool:
    """Whether both are the class or function of one name in one module."""
    names = [(getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)) for thing in (old, new)]
    return names[0] == names[1] and None not in names[0]


@functools.cache
def _import_plugins() -> None:
    """Import the modules named by ``$NORMATCH_PLUGINS`` (separated by spaces) and by installed packages."""
    modules = dict.fromkeys(os.environ.get("NORMATCH_PLUGINS", "").split(), "put its folder on PYTHONPATH")
    modules |= {point.module: "uninstall it" for point in importlib.metadata.entry_points(group=PLUGINS)}
    for name, remedy in modules.items():
        try:
            importlib.import_module(name)
        except (Exception, SystemExit) as error:  # a plug-in may raise anything
            why = f"{type(error).__name__}: {reason(error)}"
            raise UserError(f"plug-in {name!r} cannot be imported ({why}): fix it, or {remedy}") from error
