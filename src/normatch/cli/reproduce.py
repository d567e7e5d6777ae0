"""``normatch reproduce``: train what a table or figure of the paper needs, and fill it."""

import json as jsonlib
import sys
from pathlib import Path

from tyro.conf import Positional

from normatch.arguments import parse
from normatch.device import Device
from normatch.reproduce.grid import plan
from normatch.reproduce.pages import plain

__all__ = ["main"]


def main(argv: list[str]) -> None:
    parse(verb, "reproduce", argv)


def verb(
    name: Positional[str],
    steps: int | None = None,
    seeds: tuple[int, ...] = (0, 1, 2),
    only: tuple[str, ...] = (),
    minutes: float | None = None,
    data: str | None = None,
    data_root: Path | None = None,
    device: Device = "auto",
    out: Path = Path("runs/reproduce"),
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Plan, train and tabulate the runs of a table or figure of the paper. It can be stopped at any time and
    continues when called again: finished runs are not repeated.

    Args:
        name: table1 to table7, figure3 to figure5, controls (that the paper lacks), choices (what it leaves open), fast
            (the recipe cifar10-40-fast), or all.
        steps: Steps of each run, to which the paper's schedule is scaled down; by default the whole schedule.
        seeds: Label seeds; every row is trained once with each.
        only: Train only the runs whose name contains one of these words.
        minutes: Stop after so many minutes; the same command continues.
        data: Another data set in place of CIFAR-10 with 40 labels: digits, for a machine without a GPU.
        data_root: Folder that holds the data sets' files; $NORMATCH_DATA or ~/.cache/normatch by default.
        device: Where to train.
        out: Folder for the runs, their results as JSON files, and results.md.
        dry_run: Print the runs and what is left of them, and train nothing.
        json: Print one JSON object: the runs and, unless --dry-run, the tables and the runs that failed.
    """
    grid = plan(name, steps=steps, seeds=seeds, only=only, data=data, data_root=data_root, device=device, out=out)
    if not json:
        print(grid.describe(), flush=True)
    elif dry_run:
        print(jsonlib.dumps(grid.to_json()))
    if dry_run:
        return
    failed = grid.train(lambda said: print(said, file=sys.stderr if json else sys.stdout, flush=True), minutes)
    tables = grid.tables()
    if json:
        filled = {table.study.name: table.to_json() for table in tables}
        print(jsonlib.dumps(grid.to_json() | {"tables": filled, "failed": failed}))
    else:
        print("\n" + "\n\n".join(map(plain, tables)) + f"\n\n{grid.write_page()}")
        print(f"{len(grid.left)} of {len(grid.runs)} runs left")
    if failed:
        print(f"normatch: {len(failed)} of {len(grid.runs)} runs failed: {', '.join(failed)}", file=sys.stderr)
        raise SystemExit(1)
