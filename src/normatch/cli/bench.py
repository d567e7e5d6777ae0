"""``normatch bench``: time the training step."""

import json as jsonlib
from pathlib import Path

from normatch.arguments import named_fields, option, or_skipped, parse_run
from normatch.autoconfig import Plan, choose
from normatch.bars import decoding
from normatch.data import Reading
from normatch.files import must_be_free, write_json
from normatch.training.bench import bench as measure
from normatch.training.bench import describe
from normatch.training.progress import Lines

__all__ = ["main"]


def main(argv: list[str]) -> None:
    own = {
        "repeats": option(int, 5, "Number of timings; their median is reported."),
        "seconds": option(float, 2.0, "Approximate length of each timing."),
        "compare": option(str | None, None, "Another method to time in the same run."),
        "items": option(int | None, None, "Noise images in place of a named data set; by default a few steps' worth."),
        "cache": option(bool, True, "Keep decoded images for the next start: see normatch data cache."),
        "out": option(Path | None, None, "JSON file to keep the result in."),
        "force": option(bool, False, "Replace --out if it exists."),
        "json": option(bool, False, "Print a JSON array with an object for each method."),
    }
    config, given = parse_run("bench", argv, own)
    if given.out:
        must_be_free(given.out, force=given.force)
    made = Plan(config)
    if given.recipe is None:
        # Time the settings that `normatch train` would choose.
        with decoding() as on_decoded, or_skipped():
            made = choose(config, named_fields(argv), Reading(given.cache, on_decoded))
    config = made.config
    configs = [config] + ([config.replace(method=given.compare)] if given.compare else [])
    options = {"repeats": given.repeats, "seconds": given.seconds, "items": given.items, "corpus": made.corpus}
    reports = [measure(c, **options, progress=Lines(f"{c.name} {c.method}")) for c in configs]
    if given.out:
        write_json(given.out, reports)
    if given.json:
        print(jsonlib.dumps(reports))
        return
    print("\n".join(map(describe, reports)))
    if given.compare:
        ratio = reports[1]["steps_per_second"] / reports[0]["steps_per_second"]
        print(f"a step of {config.method} takes {ratio:.2f} times the time of {given.compare}")
