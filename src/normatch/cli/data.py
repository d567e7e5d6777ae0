"""``normatch data``: fetch a data set, look at one, see or clear the cache."""

import json as jsonlib
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from normatch.arguments import parse_action
from normatch.bars import decoding, downloading
from normatch.data import Reading, data_root, get, sources
from normatch.data.images import Cache
from normatch.data.inspect import describe, inspect
from normatch.text import counted

__all__ = ["main"]


def main(argv: list[str]) -> None:
    parse_action({"get": get_, "inspect": inspect_, "cache": cache_}, "data", argv)


def get_(name: Positional[str], root: Path | None = None) -> None:
    """Download a data set from its own site, check it, and keep it where training looks for it.

    Args:
        name: The data set: see `normatch list datasets`.
        root: Folder that holds the data sets' files; $NORMATCH_DATA or ~/.cache/normatch by default.
    """
    source = sources.get(name)
    with downloading() as progress:
        files = get(source, root or data_root(), progress)
    print("\n".join(map(str, files)) or f"{name} comes with an installed package: nothing to fetch")


def inspect_(
    data: Positional[str],
    unlabelled: Annotated[Path | None, arg(aliases=["--unlabeled"])] = None,
    root: Path | None = None,
    sheet: Path | None = None,
    force: bool = False,
    cache: bool = True,
    json: bool = False,
) -> None:
    """Count and compare what is in a data set: classes, sizes, unreadable files, duplicates, leaks, conflicts.

    Args:
        data: A folder of images, a CSV manifest, an .npz file or the name of a data set.
        unlabelled: A folder of more images without labels.
        root: Folder that holds the data sets' files; $NORMATCH_DATA or ~/.cache/normatch by default.
        sheet: Image file to write: some pictures of each class under its name.
        force: Replace --sheet if it exists.
        cache: Keep decoded images for the next time: see normatch data cache.
        json: Print one JSON object, with all files and groups.
    """
    with decoding() as on_decoded:
        report = inspect(
            data, root, unlabelled=unlabelled, sheet=sheet, force=force, reading=Reading(cache, on_decoded)
        )
    print(jsonlib.dumps(report) if json else describe(report))


def cache_(clear: bool = False) -> None:
    """Show where decoded images are kept ($NORMATCH_CACHE or ~/.cache/normatch/decoded) and how much there is.

    Args:
        clear: Delete them all.
    """
    cache = Cache()
    held = f"{counted(len(cache.entries()), 'entry', 'entries')}, {cache.size() / 1e6:,.1f} MB: {cache.folder}"
    if clear:
        cache.clear()
    print(f"deleted {held}" if clear else held)
