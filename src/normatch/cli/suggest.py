"""``normatch suggest``: which items to label next."""

import sys
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from normatch.arguments import parse
from normatch.bars import decoding
from normatch.data import Reading
from normatch.device import Device
from normatch.evaluate.suggest import suggest_to
from normatch.training.run import Moved

__all__ = ["main"]


def main(argv: list[str]) -> None:
    parse(verb, "suggest", argv)


def verb(
    run: Positional[Path],
    labels: int = 20,
    out: Path | None = None,
    sheet: Path | None = None,
    seed: int = 0,
    data: str | None = None,
    unlabelled: Annotated[Path | None, arg(aliases=["--unlabeled"])] = None,
    data_root: Path | None = None,
    device: Device = "auto",
    cache: bool = True,
    force: bool = False,
) -> None:
    """Suggest what to label next: one item of each kind that has no label yet, by what a finished run has learned.

    Args:
        run: Folder of the run.
        labels: How many items to suggest.
        out: Table to write, a .csv or .parquet file; standard output by default. Of files, it is a manifest with labels
            to fill in, for train --labelled.
        sheet: Image file to write: the suggested pictures under the names that the run has for them.
        seed: Draws the items to look at if there are more than 20,000, and the first clusters.
        data: The folder, CSV manifest or .npz file that it was trained on, if it has moved since.
        unlabelled: The folder of more images without labels, if it has moved.
        data_root: Folder that holds the data sets' files, if it has moved.
        device: Where to compute.
        cache: Keep decoded images for the next time: see normatch data cache.
        force: Replace --out and --sheet if they exist.
    """
    moved = Moved(data, unlabelled, data_root)
    with decoding() as on_decoded:
        reading = Reading(cache, on_decoded)
        said = suggest_to(run, labels, out, sheet, force=force, seed=seed, moved=moved, device=device, reading=reading)
    print(said, file=sys.stderr if out is None else sys.stdout)
