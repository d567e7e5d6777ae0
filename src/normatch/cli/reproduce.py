"""``normatch reproduce``: train what a table or figure of the paper needs, and fill it."""

import json as jsonlib
import sys
from pathlib import Path

from tyro.conf import Positional

from normatch.arguments import parse
from normatch.device import Device
from normatch.reproduce.plan import make_plan
from normatch.reproduce.work import carry_out, summary, tables

__all__ = ["main"]


def main(argv: list[str]) -> None:
    parse(verb, "reproduce", argv)


def verb(
    name: Positional[str],
    budget: str = "full",
    seeds: tuple[int, ...] = (0, 1, 2),
    data: str | None = None,
    recipe: str | None = None,
    data_root: Path | None = None,
    device: Device = "auto",
    only: tuple[str, ...] = (),
    at_once: int = 1,
    out: Path = Path("runs/reproduce"),
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Plan, train and tabulate the runs of a table or figure of the paper. It can be stopped at any time and
    continues when called again: finished runs are not repeated.

    Args:
        name: table1 to table7, figure3 to figure5, choices (what the paper leaves open), fast (the recipe
            cifar10-40-fast), or all.
        budget: full: the paper's schedule. 300: at most 300 epochs. quick: a short trial, to see it work. Any other
            number: minutes for each run on this machine (300.0 for 300 minutes). 20480steps: that many steps. The
            schedule is scaled to it.
        seeds: Label seeds; every row is trained once with each.
        data: Another data set in place of CIFAR-10 with 40 labels: digits, for a machine without a GPU.
        recipe: Another recipe in place of cifar10-40, with its data, network and schedule.
        data_root: Folder that holds the data sets' files; $NORMATCH_DATA or ~/.cache/normatch by default.
        device: Where to train.
        only: Train only the runs whose name contains one of these words.
        at_once: Runs to train at a time; if the GPU has room, one more run gets ready meanwhile.
        out: Folder for the runs, their results as JSON files, and results.md.
        dry_run: Print the plan and its estimated time, and train nothing.
        json: Print one JSON object: the plan and, unless --dry-run, the tables and the runs that failed.
    """
    plan = make_plan(
        name,
        budget=budget,
        seeds=seeds,
        data=data,
        recipe=recipe,
        data_root=data_root,
        device=device,
        only=only,
        at_once=at_once,
        out=out,
        timed=dry_run,
    )
    if not json:
        print(plan.describe(), flush=True)
    elif dry_run:
        print(jsonlib.dumps(plan.to_json()))
    if dry_run:
        return
    failed = carry_out(plan, lambda said: print(said, file=sys.stderr if json else sys.stdout, flush=True))
    if json:
        print(jsonlib.dumps(plan.to_json() | tables(plan) | {"failed": failed}))
    else:
        print(f"\n{summary(plan)}\n\n{plan.out / 'results.md'}")
    if failed:
        print(f"normatch: {len(failed)} of {len(plan.runs)} runs failed: {', '.join(failed)}", file=sys.stderr)
        raise SystemExit(1)
