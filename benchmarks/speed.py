"""Every speed that is claimed, in one command and one file: steps a second, shares of a step, memory, start-up.

python benchmarks/speed.py --out FILE runs ``normatch bench`` for all cases, each in a process of its own, and writes
FILE after each; names of cases run those alone. A case that fails is recorded with its error and the others go on.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from normatch.device import circumstances
from normatch.files import write_json

JOINT, SHARED = "--settings.passes joint", "--settings.passes shared"
CASES = {
    "cifar10-40-normatch-joint": f"cifar10-40 {JOINT}",
    "cifar10-40-fixmatch-joint": f"cifar10-40 --method fixmatch {JOINT}",
    "cifar10-40-normatch-shared": f"cifar10-40 {SHARED}",
    "cifar10-40-fixmatch-shared": f"cifar10-40 --method fixmatch {SHARED}",
    # The first case again, now that its compiled code is cached: compare the times of their starts.
    "second-start": f"cifar10-40 {JOINT}",
    "cifar10-40-normatch-eager-float32": "cifar10-40 --compile off --precision float32",
    "cifar100-400-normatch": "cifar100-400",
    "cifar100-400-normatch-shared": f"cifar100-400 {SHARED}",
    "mini-imagenet-normatch": "mini-imagenet-4000",
    "stl10-normatch": "stl10-1000",
    "digits-40-normatch": "digits-40",
}
"""The arguments of ``normatch bench``."""

LIMIT = 900
"""Seconds that a case may take."""


def measure(name: str, options: list[str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "normatch", "bench", *CASES[name].split(), *options, "--json"]
    try:
        done = subprocess.run(command, check=True, timeout=LIMIT, stdout=subprocess.PIPE)
    except subprocess.SubprocessError as error:
        return {"case": name, "error": str(error)}
    report: dict[str, Any] = json.loads(done.stdout)
    return {"case": name} | report


def ratios(reports: list[dict[str, Any]]) -> dict[str, float]:
    """Time of a NorMatch step over that of a FixMatch step, for each way of passing views."""
    speed = {report["case"]: report.get("steps_per_second") for report in reports}
    pairs = {p: [speed.get(f"cifar10-40-{m}-{p}") for m in ("fixmatch", "normatch")] for p in ("joint", "shared")}
    return {passes: pair[0] / pair[1] for passes, pair in pairs.items() if pair[0] and pair[1]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"by default all: {', '.join(CASES)}")
    parser.add_argument("--out", type=Path, required=True, help="JSON file to write")
    parser.add_argument("--repeats", type=int, default=5)
    # As in CIFAR-10: images on the device count in the peak memory.
    parser.add_argument("--images", type=int, default=50_000, help="images of noise on the device")
    given = parser.parse_args()
    options = ["--repeats", str(given.repeats), "--images", str(given.images)]
    reports: list[dict[str, Any]] = []
    for name in given.cases or CASES:
        reports.append(measure(name, options))
        print(f"{name}: {reports[-1].get('steps_per_second') or reports[-1]['error']}", flush=True)
        found = {"what": "speed of training on noise", **circumstances(), "repeats": given.repeats}
        write_json(given.out, found | {"normatch_over_fixmatch": ratios(reports), "cases": reports})
    if any("error" in report for report in reports):
        sys.exit(1)


if __name__ == "__main__":
    main()
