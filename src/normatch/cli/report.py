"""``normatch report``: write the page of a finished run."""

import json as jsonlib
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from normatch.arguments import parse
from normatch.data import Reading
from normatch.device import Device
from normatch.errors import UserError
from normatch.report import numbers_of, write_report
from normatch.training.run import Moved

__all__ = ["main"]


def main(argv: list[str]) -> None:
    parse(verb, "report", argv)


def verb(
    run: Positional[Path],
    out: Path | None = None,
    data: str | None = None,
    unlabelled: Annotated[Path | None, arg(aliases=["--unlabeled"])] = None,
    data_root: Path | None = None,
    device: Device = "auto",
    cache: bool = True,
    force: bool = False,
    json: bool = False,
) -> None:
    """Write the report of a finished run as one self-contained HTML page.

    Args:
        run: Folder of the run.
        out: File to write; RUN/report.html by default.
        data: The folder, CSV manifest or .npz file that it was trained on, if it has moved since.
        unlabelled: The folder of more images without labels, if it has moved.
        data_root: Folder that holds the data sets' files, if it has moved.
        device: Where to compute.
        cache: Keep decoded images for the next time: see normatch data cache.
        force: Replace --out if it exists, or the report of a run whose data cannot be read again.
        json: Print the numbers of the page as one JSON object instead.
    """
    moved = Moved(data, unlabelled, data_root)
    if json and out is not None:
        raise UserError("--json prints the numbers and writes no page: leave out --json or --out")
    how: dict[str, Any] = {"moved": moved, "device": device, "reading": Reading(cache)}
    if json:
        print(jsonlib.dumps(numbers_of(run, **how)))
    else:
        print(write_report(run, out, **how, force=force, tell=partial(print, file=sys.stderr)))
