"""The names that a config may use (methods, data sets, backbones, recipes), each with a one-line summary."""

from typing import Any, Literal

from normatch.data import sources
from normatch.methods import methods
from normatch.nets import backbones
from normatch.recipes import recipes
from normatch.registry import Registry

__all__ = ["Kind", "catalogue"]

Kind = Literal["methods", "datasets", "backbones", "recipes"]

REGISTRIES: dict[Kind, Registry[Any]] = {
    "methods": methods,
    "datasets": sources,
    "backbones": backbones,
    "recipes": recipes,
}


def catalogue(kind: Kind) -> list[dict[str, str]]:
    """One entry per name of this kind, with the keys ``name`` and ``summary``."""
    return [{"name": name, "summary": entry.summary} for name, entry in REGISTRIES[kind].items()]
