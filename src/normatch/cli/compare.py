"""``normatch compare``: put finished runs side by side."""

import json as jsonlib
from pathlib import Path

from tyro.conf import Positional

from normatch.arguments import parse
from normatch.config import to_json
from normatch.report import compare as compare_runs
from normatch.report import describe, write_comparison

__all__ = ["main"]


def main(argv: list[str]) -> None:
    parse(verb, "compare", argv)


def verb(runs: Positional[tuple[Path, ...]], out: Path | None = None, force: bool = False, json: bool = False) -> None:
    """Compare finished runs from their folders; the data is not needed.

    Args:
        runs: Folders of the runs.
        out: HTML page to write as well.
        force: Replace --out if it exists.
        json: Print one JSON object.
    """
    comparison = compare_runs(runs)
    page = write_comparison(comparison, out, force=force) if out else None
    print(jsonlib.dumps(to_json(comparison)) if json else describe(comparison))
    if page and not json:
        print(f"\n{page}")
