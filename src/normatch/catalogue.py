"""The names that a config may use (methods, data sets, backbones, recipes), each with a one-line summary."""

from typing import Literal

from normatch.data import sources
from normatch.methods import methods
from normatch.nets import backbones
from normatch.recipes import recipes

__all__ = ["Kind", "catalogue"]

Kind = Literal["methods", "datasets", "backbones", "recipes"]


def catalogue(kind: Kind) -> list[dict[str, str]]:
    """One entry per name of this kind, with the keys ``name`` and ``summary``."""
    summaries = {
        "methods": lambda: ((name, method.summary) for name, method in methods.items()),
        "datasets": lambda: ((name, source.summary) for name, source in sources.items()),
        "backbones": lambda: ((name, spec.summary) for name, spec in backbones.items()),
        "recipes": lambda: ((name, recipe.summary) for name, recipe in recipes.items()),
    }
    return [{"name": name, "summary": summary} for name, summary in summaries[kind]()]
