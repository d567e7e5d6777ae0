"""``normatch train``: train a recipe or your own data."""

import shlex
from pathlib import Path

from normatch.arguments import named_fields, option, or_skipped, parse_run
from normatch.autoconfig import plan
from normatch.bars import decoding
from normatch.data import Reading
from normatch.errors import resume_command
from normatch.training import train as run_training
from normatch.training.progress import shown
from normatch.training.run import Moved, Run
from normatch.training.train import run_folder, with_absolute_paths

__all__ = ["main"]


def main(argv: list[str]) -> None:
    own = {
        "out": option(Path | None, None, "Folder of the run; runs/NAME by default."),
        "resume": option(bool, False, "Continue the run in --out from its newest checkpoint."),
        "minutes": option(float | None, None, "Time for training: sets the steps by the speed measured here."),
        "cache": option(bool, True, "Keep decoded images for the next start: see normatch data cache."),
    }
    config, given = parse_run("train", argv, own)
    kept = Run(run_folder(config, given.out))
    finished = given.resume and kept.finished
    with decoding() as on_decoded, or_skipped():
        made = plan(
            config,
            given.out,
            resume=given.resume,
            minutes=given.minutes,
            automatic=given.recipe is None,
            fixed=named_fields(argv),
            reading=Reading(given.cache, on_decoded),
        )
    print(made.describe(), end="", flush=True)
    config = made.config
    try:
        # A run that is resumed keeps its name.
        with shown(f"{kept.config.name if given.resume else config.name} {config.method}") as progress:
            run = run_training(
                config,
                given.out,
                resume=given.resume,
                progress=progress,
                corpus=made.corpus,
                reading=Reading(given.cache),
            )
    except KeyboardInterrupt:
        if not kept.path.is_dir():
            raise
        moved = Moved.between(kept.config, with_absolute_paths(config))
        raise KeyboardInterrupt(f"continue with {resume_command(kept.path, *moved.flags())}") from None
    print(f"{'already finished: ' if finished else ''}{run.describe()}")
    place = shlex.quote(str(run.path))
    print(f"next: normatch report {place}, or normatch predict {place} NEW --out labels.csv")
