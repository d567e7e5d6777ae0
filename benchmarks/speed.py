"""Every speed that is claimed, in one command and one file: steps a second, shares of a step, memory, start-up.

python benchmarks/speed.py --out FILE runs all cases, each in a process of its own, and writes FILE after each of them;
with names it runs those alone (--list shows them). A case that fails is recorded with its error and the others go on.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import traceback
import typing
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from normatch import recipes
from normatch.config import Config
from normatch.device import circumstances
from normatch.files import read_json, write_json
from normatch.methods.parts.weak_to_strong import Passes
from normatch.training.bench import bench, describe
from normatch.training.progress import Lines

IMAGES = 50_000
"""Images on the device, as in CIFAR-10: they count in the peak memory."""

LIMIT = 900
"""Seconds that a case may take."""


def _passing(recipe: Callable[[], Config], method: str, passes: str) -> Config:
    config = recipe().replace(method=method)
    settings: Any = config.settings
    return config.replace(settings=replace(settings, passes=passes))


def cases() -> dict[str, Callable[[], Config]]:
    """Each case's config by its name."""
    found: dict[str, Callable[[], Config]] = {}
    for passes in typing.get_args(Passes):
        for method in ("normatch", "fixmatch"):
            found[f"cifar10-40-{method}-{passes}"] = partial(_passing, recipes.cifar10, method, passes)
    eager = {"compile": "off", "precision": "float32"}
    found |= {
        "cifar10-40-normatch-eager-float32": lambda: recipes.cifar10().replace(**eager),
        "cifar100-400-normatch": recipes.cifar100,
        "cifar100-400-normatch-shared": partial(_passing, recipes.cifar100, "normatch", "shared"),
        "mini-imagenet-normatch": recipes.mini_imagenet,
        "stl10-normatch": recipes.stl10,
        "digits-40-normatch": recipes.digits,
        # The first case again, now that its compiled code is cached: compare the times of their starts.
        "second-start": partial(_passing, recipes.cifar10, "normatch", typing.get_args(Passes)[0]),
    }
    return found


def run(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """One case's report, measured in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "report.json"
        command = [sys.executable, __file__, name, "--alone", "--out", str(out), "--options", json.dumps(options)]
        try:
            code = subprocess.run(command, check=False, timeout=LIMIT).returncode
            report: dict[str, Any] = read_json(out) if out.is_file() else {"error": f"exit code {code}"}
        except subprocess.TimeoutExpired:
            report = {"error": f"not done after {LIMIT} seconds"}
    return {"case": name} | report


def measure(name: str, out: Path, options: dict[str, Any]) -> None:
    """The process of one case."""
    small = options.pop("batch")
    try:
        config = cases()[name]()
        if small:
            config = config.replace(batch=small, ratio=1)
        report = bench(config, progress=Lines(name), **options)
        print(describe(report), flush=True)
    except Exception as error:
        traceback.print_exc()
        report = {"error": f"{type(error).__name__}: {error}"}
    write_json(out, report)


def ratios(reports: list[dict[str, Any]]) -> dict[str, float]:
    """Time of a NorMatch step over that of a FixMatch step, for each way of passing views."""
    speed = {r["case"]: r["steps_per_second"] for r in reports if "error" not in r}
    both = ((p, f"cifar10-40-normatch-{p}", f"cifar10-40-fixmatch-{p}") for p in typing.get_args(Passes))
    return {p: speed[other] / speed[own] for p, own, other in both if own in speed and other in speed}


def main() -> None:
    names = list(cases())
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help="by default all")
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a timing, about")
    parser.add_argument("--images", type=int, default=IMAGES, help="images of noise on the device")
    parser.add_argument("--batch", type=int, help="labelled and unlabelled images of a step, to try this script out")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--options", type=json.loads, help=argparse.SUPPRESS)
    given = parser.parse_args()
    unknown = [name for name in given.cases if name not in names]
    if unknown:
        parser.error(f"unknown case {unknown[0]}: choose from {', '.join(names)}")
    if given.list:
        print("\n".join(names))
        return
    if given.alone:
        measure(given.cases[0], given.out, given.options)
        return
    options = {"repeats": given.repeats, "seconds": given.seconds, "images": given.images, "batch": given.batch}
    reports: list[dict[str, Any]] = []
    for name in given.cases or names:
        reports.append(run(name, options))
        if given.out:
            found = {"what": "speed of training on noise", **circumstances(), "repeats": given.repeats}
            write_json(given.out, found | {"normatch_over_fixmatch": ratios(reports), "cases": reports})
    for passes, ratio in ratios(reports).items():
        print(f"{passes}: a step of NorMatch takes {ratio:.3f} times the time of one of FixMatch")
    failed = [r["case"] for r in reports if "error" in r]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
