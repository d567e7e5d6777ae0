"""``normatch eval``: score a finished run on its held-out items."""

import json as jsonlib
import sys
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from normatch.arguments import parse
from normatch.bars import decoding
from normatch.data import Reading
from normatch.device import Device
from normatch.evaluate.answers import On
from normatch.evaluate.score import describe, score_run, unlike_before
from normatch.training.run import Moved

__all__ = ["main"]


def main(argv: list[str]) -> None:
    parse(verb, "eval", argv)


def verb(
    run: Positional[Path],
    on: On = "auto",
    data: str | None = None,
    unlabelled: Annotated[Path | None, arg(aliases=["--unlabeled"])] = None,
    data_root: Path | None = None,
    device: Device = "auto",
    cache: bool = True,
    json: bool = False,
) -> None:
    """Score a finished run on its held-out items.

    Args:
        run: Folder of the run.
        on: Which items; auto is the test set or, if there is none, the validation items.
        data: The folder, CSV manifest or .npz file that it was trained on, if it has moved since.
        unlabelled: The folder of more images without labels, if it has moved.
        data_root: Folder that holds the data sets' files, if it has moved.
        device: Where to compute.
        cache: Keep decoded images for the next time: see normatch data cache.
        json: Print one JSON object.
    """
    moved = Moved(data, unlabelled, data_root)
    with decoding() as on_decoded:
        report = score_run(run, on=on, moved=moved, device=device, reading=Reading(cache, on_decoded))
    print(jsonlib.dumps(report) if json else describe(report))
    remark = unlike_before(run, report)
    if remark is not None:
        print(f"! {remark}", file=sys.stderr)
