"""``normatch list``: list the methods, datasets, backbones or recipes."""

import json as jsonlib

from tyro.conf import Positional

from normatch.arguments import parse
from normatch.catalogue import Kind, catalogue

__all__ = ["main"]


def main(argv: list[str]) -> None:
    parse(verb, "list", argv)


def verb(what: Positional[Kind], json: bool = False) -> None:
    """List what can be named in a config.

    Args:
        what: The kind of thing: methods, datasets, backbones or recipes.
        json: Print a JSON array of objects with name and summary.
    """
    rows = catalogue(what)
    if json:
        print(jsonlib.dumps(rows))
    else:
        width = max(len(row["name"]) for row in rows)
        print("\n".join(f"{row['name']:<{width}}  {row['summary']}" for row in rows))
