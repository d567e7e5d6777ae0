"""The command line: one short function per verb."""

import io
import json as jsonlib
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Literal

from normatch.errors import UserError, resume_command
from normatch.files import FULL

__all__ = ["main"]

Device = Literal["auto", "cpu", "cuda"]
"""Same as :data:`normatch.device.Device`; repeated here because importing that module would load torch for --help."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit code; a UserError becomes one line on standard error and exit code 2."""
    verb, *rest = [_expanded(word) for word in (sys.argv[1:] if argv is None else argv)] or ["--help"]
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        # As on standard error: file names that are not valid text are printed with escapes instead of failing.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        if verb in ("-h", "--help"):
            print(_help())
        elif verb == "--version":
            import normatch

            print(normatch.__version__)
        elif verb not in VERBS:
            raise UserError(f"unknown verb {verb!r}: choose from {', '.join(VERBS)}")
        else:
            VERBS[verb](rest)
    except UserError as error:
        print(f"normatch: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader of our output (head, less) has closed it; flushing the rest at exit must not raise again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if error.filename is None and error.errno not in FULL:
            raise
        where = f"{error.filename}: " if error.filename is not None else ""
        print(f"normatch: {where}{error.strerror}; fix that, or choose another place", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        said = str(stop) or ("run it again to continue" if verb == "reproduce" else "")
        print(f"normatch: stopped{said and '; '}{said}", file=sys.stderr)
        return 1
    return 0


def train(argv: list[str]) -> None:
    """Train a recipe, or your own data with --data, into a new folder."""
    from normatch.arguments import named_fields, option, parse_run, with_absolute_paths
    from normatch.bars import decoding
    from normatch.choices import plan
    from normatch.data import Reading
    from normatch.engine import train as run_training
    from normatch.engine.progress import shown
    from normatch.engine.run import Run
    from normatch.engine.train import run_folder

    own = {
        "out": option(Path | None, None, "Folder of the run; runs/NAME by default."),
        "resume": option(bool, False, "Continue the run in --out from its newest checkpoint."),
        "minutes": option(float | None, None, "Time for training: sets the steps by the speed measured here."),
        "cache": option(bool, True, "Keep decoded images for the next start: see normatch data cache."),
    }
    config, given = parse_run("train", argv, own)
    kept = Run(run_folder(config, given.out))
    finished = given.resume and kept.finished
    with decoding() as on_decoded:
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
    try:
        with shown(f"{config.name} {config.method}") as progress:
            run = run_training(
                with_absolute_paths(made.config),
                given.out,
                resume=given.resume,
                progress=progress,
                corpus=made.corpus,
                reading=Reading(given.cache),
            )
    except KeyboardInterrupt:
        if not kept.path.is_dir():
            raise
        raise KeyboardInterrupt(f"continue with {resume_command(kept.path)}") from None
    print(f"{'already finished: ' if finished else ''}{run.describe()}")
    place = shlex.quote(str(run.path))
    print(f"next: normatch report {place}, or normatch predict {place} NEW --out labels.csv")


def evaluate(argv: list[str]) -> None:
    """Score a finished run on its held-out items."""
    from tyro.conf import Positional, arg

    from normatch.bars import decoding
    from normatch.data import Reading
    from normatch.engine.run import Moved
    from normatch.evaluate.score import describe, score_run

    def verb(
        run: Positional[Path],
        on: Literal["auto", "test", "validation"] = "auto",
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

    _run(verb, "eval", argv)


def predict(argv: list[str]) -> None:
    """Label images with a trained model."""
    from tyro.conf import Positional

    from normatch.evaluate.table import predict_to

    def verb(
        run: Positional[Path],
        inputs: Positional[tuple[Path, ...]],
        out: Path | None = None,
        on_bad_image: Literal["stop", "skip"] = "stop",
        batch: int = 256,
        device: Device = "auto",
        force: bool = False,
    ) -> None:
        """Label image files, all images of folders, or the rows of an array with a trained model.

        Args:
            run: Folder of the run.
            inputs: Image files, folders, CSV files that list images, one .npy or .npz file, or - for paths on standard
                input, one per line.
            out: Table to write, a .csv or .parquet file; standard output by default.
            on_bad_image: On an unreadable image, stop before anything is written, or skip it and name it at the end.
            batch: Items that go through the network at once.
            device: Where to compute.
            force: Replace --out if it exists.
        """
        said = predict_to(run, inputs, out, on_bad=on_bad_image, batch=batch, device=device, force=force)
        print(said, file=sys.stderr if out is None else sys.stdout)

    _run(verb, "predict", argv)


def export(argv: list[str]) -> None:
    """Turn a trained model into one ONNX or torch file."""
    from tyro.conf import Positional

    from normatch.evaluate.export import export_run

    def verb(
        run: Positional[Path],
        format: Literal["onnx", "torch"] = "onnx",
        out: Path | None = None,
        force: bool = False,
    ) -> None:
        """Write a trained model, preprocessing included, to one file that runs without normatch.

        Args:
            run: Folder of the run.
            format: onnx for ONNX runtimes, torch for torch.export.load.
            out: File to write; model.onnx or model.pt2 in the run's folder by default.
            force: Replace the file if it exists.
        """
        print(export_run(run, format, out, force=force))

    _run(verb, "export", argv)


def list_(argv: list[str]) -> None:
    """List the methods, datasets, backbones or recipes."""
    from tyro.conf import Positional

    from normatch.catalogue import catalogue

    def verb(what: Positional[Literal["methods", "datasets", "backbones", "recipes"]], json: bool = False) -> None:
        """List what can be named in a config.

        Args:
            what: The kind of thing.
            json: Print a JSON array of objects with name and summary.
        """
        rows = catalogue(what)
        if json:
            print(jsonlib.dumps(rows))
        else:
            width = max(len(row["name"]) for row in rows)
            print("\n".join(f"{row['name']:<{width}}  {row['summary']}" for row in rows))

    _run(verb, "list", argv)


def data(argv: list[str]) -> None:
    """Fetch a data set, look at one, see or clear the cache: normatch data get|inspect|cache."""
    from tyro.conf import Positional, arg

    from normatch.arguments import parse_action
    from normatch.bars import decoding, downloading
    from normatch.data import Reading, data_root, get, sources
    from normatch.data.inspect import describe, inspect
    from normatch.images.cache import Cache, describe_cache

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
        cache: bool = True,
        json: bool = False,
    ) -> None:
        """Count and compare what is in a data set: classes, sizes, unreadable files, duplicates, leaks, conflicts.

        Args:
            data: A folder of images, a CSV manifest, an .npz file or the name of a data set.
            unlabelled: A folder of more images without labels.
            root: Folder that holds the data sets' files; $NORMATCH_DATA or ~/.cache/normatch by default.
            sheet: Image file to write: some pictures of each class under its name.
            cache: Keep decoded images for the next time: see normatch data cache.
            json: Print one JSON object, with all files and groups.
        """
        with decoding() as on_decoded:
            report = inspect(data, root, unlabelled=unlabelled, sheet=sheet, reading=Reading(cache, on_decoded))
        print(jsonlib.dumps(report) if json else describe(report))

    def cache_(clear: bool = False, json: bool = False) -> None:
        """Show the decoded images that are kept, in $NORMATCH_CACHE or ~/.cache/normatch/decoded.

        Args:
            clear: Delete them all.
            json: Print a JSON array with an object for each entry; with --clear, for each entry deleted.
        """
        cache = Cache()
        rows = cache.clear() if clear else cache.listing()
        print(jsonlib.dumps(rows) if json else describe_cache(cache.folder, rows, cleared=clear))

    parse_action({"get": get_, "inspect": inspect_, "cache": cache_}, "data", argv)


def bench(argv: list[str]) -> None:
    """Time the training step of a recipe, or of your own data with --data, on this machine."""
    from normatch.arguments import named_fields, option, parse_run
    from normatch.bars import decoding
    from normatch.choices import Plan, choose
    from normatch.data import Reading
    from normatch.engine.bench import bench as measure
    from normatch.engine.bench import describe
    from normatch.engine.progress import Lines
    from normatch.files import must_be_free, write_json

    own = {
        "repeats": option(int, 5, "Number of timings; their median is reported."),
        "seconds": option(float, 2.0, "Approximate length of each timing."),
        "compare": option(str | None, None, "Another method to time in the same run."),
        "items": option(int | None, None, "Noise images in place of a named data set; by default a few steps' worth."),
        "out": option(Path | None, None, "JSON file to keep the result in."),
        "json": option(bool, False, "Print a JSON array with an object for each method."),
    }
    config, given = parse_run("bench", argv, own)
    if given.out:
        must_be_free(given.out, force=True)
    made = Plan(config)
    if given.recipe is None:
        # Time the settings that `normatch train` would choose.
        with decoding() as on_decoded:
            made = choose(config, named_fields(argv), Reading(progress=on_decoded))
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


def report(argv: list[str]) -> None:
    """Write the page of a finished run: accuracy, curves, confusion, calibration, disputed images."""
    from tyro.conf import Positional, arg

    from normatch.engine.run import Moved
    from normatch.report import numbers_of, write_report

    def verb(
        run: Positional[Path],
        out: Path | None = None,
        data: str | None = None,
        unlabelled: Annotated[Path | None, arg(aliases=["--unlabeled"])] = None,
        data_root: Path | None = None,
        device: Device = "auto",
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
            json: Print the numbers of the page as one JSON object instead.
        """
        moved = Moved(data, unlabelled, data_root)
        if json:
            print(jsonlib.dumps(numbers_of(run, moved=moved, device=device)))
        else:
            print(write_report(run, out, moved=moved, device=device))

    _run(verb, "report", argv)


def compare(argv: list[str]) -> None:
    """Put finished runs side by side: settings that differ, accuracies, who won on the same items."""
    from tyro.conf import Positional

    from normatch.config import to_json
    from normatch.report import compare as compare_runs
    from normatch.report import describe, write_comparison

    def verb(runs: Positional[tuple[Path, ...]], out: Path | None = None, json: bool = False) -> None:
        """Compare finished runs from their folders; the data is not needed.

        Args:
            runs: Folders of the runs.
            out: HTML page to write as well.
            json: Print one JSON object.
        """
        comparison = compare_runs(runs)
        page = write_comparison(comparison, out) if out else None
        print(jsonlib.dumps(to_json(comparison)) if json else describe(comparison))
        if page and not json:
            print(f"\n{page}")

    _run(verb, "compare", argv)


def reproduce(argv: list[str]) -> None:
    """Train what a table or figure of the paper needs, and fill it: table1, figure3, all and so on."""
    from tyro.conf import Positional

    from normatch.reproduce.plan import make_plan
    from normatch.reproduce.work import carry_out, summary, tables

    def verb(
        name: Positional[str],
        budget: str = "full",
        seeds: tuple[int, ...] = (0, 1, 2),
        data: str | None = None,
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
            name: table1 to table7, figure3 to figure5, choices (what the paper leaves open), or all.
            budget: full (the paper's schedule), 300 (epochs at most), quick (to see it work), the minutes that each run
                may take here, or a number of steps such as 20480steps. The schedule is scaled to it.
            seeds: Label seeds; every row is trained once with each.
            data: Another data set in place of CIFAR-10 with 40 labels: digits, for a machine without a GPU.
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
            data_root=data_root,
            device=device,
            only=only,
            at_once=at_once,
            out=out,
        )
        planned = plan.to_json()
        if not json:
            print(plan.describe(), flush=True)
        elif dry_run:
            print(jsonlib.dumps(planned))
        if dry_run:
            return
        failed = carry_out(plan, lambda said: print(said, file=sys.stderr if json else sys.stdout, flush=True))
        if json:
            print(jsonlib.dumps(planned | {"tables": tables(plan), "failed": failed}))
        else:
            print(f"\n{summary(plan)}\n\n{plan.out / 'results.md'}")
        if failed:
            print(f"normatch: {len(failed)} of {len(plan.runs)} runs failed: {', '.join(failed)}", file=sys.stderr)
            raise SystemExit(1)

    _run(verb, "reproduce", argv)


def demo(argv: list[str]) -> None:
    """Four methods on the same 40 labelled digits, in about a minute."""
    from normatch.demo import run_demo

    def verb(seed: int = 0, out: Path | None = None, steps: int | None = None) -> None:
        """Supervised training, LabelSpreading, FixMatch and NorMatch on the same 40 labelled digits.

        Args:
            seed: Draws the labels and the held-out digits.
            out: New folder for the runs; by default they are not kept.
            steps: Training steps of each method; the recipe's by default.
        """
        run_demo(seed, out, steps)

    _run(verb, "demo", argv)


VERBS: dict[str, Callable[[list[str]], None]] = {
    "train": train,
    "eval": evaluate,
    "predict": predict,
    "export": export,
    "list": list_,
    "data": data,
    "report": report,
    "compare": compare,
    "reproduce": reproduce,
    "bench": bench,
    "demo": demo,
}


def _run(verb: Callable[..., None], name: str, argv: list[str]) -> None:
    from normatch.arguments import parse

    parse(verb, name, argv)


def _expanded(word: str) -> str:
    """The argument with a leading ``~`` expanded, also in ``--out=~/runs``, where the shell leaves it as it is."""
    flag, equals, value = word.partition("=")
    if equals and flag.startswith("--"):
        return f"{flag}={os.path.expanduser(value)}"
    return os.path.expanduser(word)


def _help() -> str:
    verbs = "\n".join(f"  {name:<11}{(function.__doc__ or '').strip()}" for name, function in VERBS.items())
    return (
        "usage: normatch VERB [options]\n\n"
        "Train an image classifier from a handful of labels and many unlabelled images.\n\n"
        f"{verbs}\n\n"
        "normatch VERB --help explains a verb. Exit codes: 0 done, 2 the input is wrong, 1 anything else."
    )
