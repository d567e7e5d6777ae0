"""The command line: each verb parses its arguments, calls the package and prints.

A verb imports what it needs when it is called, so that ``normatch --help`` does not wait for torch.
"""

import contextlib
import dataclasses
import difflib
import functools
import io
import itertools
import json as jsonlib
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from tyro.conf import Positional

from normatch.errors import RESUME, UserError, reason
from normatch.files import FULL
from normatch.text import counted, on_one_line

if TYPE_CHECKING:
    from normatch.config import Config
    from normatch.training.launch import Launched

__all__ = ["main"]

DEFAULT_RECIPE = "digits-40"
"""The recipe of a command line that names neither a recipe, nor data, nor a config."""

Device = Annotated[Literal["auto", "cpu", "cuda"], tyro.conf.arg(help="Where to compute.")]
RunFolder = Positional[Annotated[Path, tyro.conf.arg(metavar="RUN", help="Folder of the run.")]]
Root = Annotated[
    Path | None,
    tyro.conf.arg(help="Folder that holds the data sets' files; $NORMATCH_DATA or ~/.cache/normatch by default."),
]
Caching = Annotated[bool, tyro.conf.arg(help="Keep decoded images for the next time: see normatch data cache.")]
Force = Annotated[bool, tyro.conf.arg(help="Replace files that exist.")]
Json = Annotated[bool, tyro.conf.arg(help="Print one JSON object.")]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit code: 0 done, 2 wrong input (one line on standard error), 75 stopped but can be
    resumed, 1 anything else."""
    words = [_spelt(word) for word in (sys.argv[1:] if argv is None else argv)]
    asks = not words or words[-1] in ("-h", "--help")
    verb = next((name for name in VERBS if words[: len(name.split())] == name.split()), None)
    group = [name for name in VERBS if words and name.startswith(f"{words[0]} ")]
    try:
        if words == ["--version"]:
            from normatch import __version__

            print(__version__)
        elif verb is not None:
            VERBS[verb](words[len(verb.split()) :])
        elif asks and len(words) < 2:
            print(_help(list(VERBS)))
        elif group and (asks or len(words) == 1):
            print(_help(group))
        else:
            wrong = " ".join(words[: 2 if group else 1])
            by_last = {name.rpartition(" ")[2]: name for name in group or VERBS}
            meant = difflib.get_close_matches(wrong.rpartition(" ")[2], by_last, n=1)
            hint = f" (did you mean {by_last[meant[0]]!r}?)" if meant else ""
            raise UserError(f"unknown verb {wrong!r}{hint}: choose from {', '.join(group or VERBS)}")
    except UserError as error:
        print(f"normatch: {on_one_line(str(error))}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader of our output (head, less) has closed it; flushing the rest at exit must not raise again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if error.filename is None and error.errno not in FULL:
            raise
        where = f"{on_one_line(str(error.filename))}: " if error.filename is not None else ""
        print(f"normatch: {where}{error.strerror}; fix that, or choose another place", file=sys.stderr)
        return 2
    except MemoryError as error:
        why = on_one_line(reason(error))
        print(
            f"normatch: too little memory ({why}): give fewer or smaller images, or end other programs", file=sys.stderr
        )
        return 1
    except KeyboardInterrupt as stop:
        # With a message, it says how to continue.
        print(f"normatch: stopped{str(stop) and '; '}{on_one_line(str(stop))}", file=sys.stderr)
        return RESUME if str(stop) else 1
    return 0


def _spelt(word: str) -> str:
    """An argument with the spelling of the flags, and with ``~`` expanded also in ``--out=~/runs``, where the shell
    leaves it as it is."""
    if word.startswith(("--labeled", "--unlabeled")):
        word = word.replace("labeled", "labelled", 1)
    flag, equals, value = word.partition("=")
    if equals and flag.startswith("--"):
        return f"{flag}={os.path.expanduser(value)}"
    return os.path.expanduser(word)


def _help(verbs: list[str]) -> str:
    rows = "\n".join(f"  {name:<14}{(VERBS[name].__doc__ or '').splitlines()[0]}" for name in verbs)
    return (
        "usage: normatch VERB [options]\n\n"
        "Train an image classifier from a handful of labels and many unlabelled images.\n\n"
        f"{rows}\n\n"
        "normatch VERB --help explains a verb.\n"
        "Exit codes: 0 done, 2 the input is wrong, 75 stopped and can be resumed, 1 anything else."
    )


def _say(text: str, file: Any = None) -> None:
    """Print lines; names in them cannot control the terminal."""
    print("\n".join(map(on_one_line, text.split("\n"))), file=file, flush=True)


def _parse(target: Any, verb: str, argv: list[str], default: Any = None) -> Any:
    """What ``target``, a function or a dataclass, gives for ``argv``; a UserError of one line if they are wrong."""
    options = {} if default is None else {"default": default}
    shown = io.StringIO()
    try:
        with contextlib.redirect_stderr(shown):
            return tyro.cli(target, prog=f"normatch {verb}", args=argv, **options)
    except SystemExit as stop:
        if stop.code:
            raise UserError(f"{verb}: {_message(shown.getvalue())}; see normatch {verb} --help") from None
        raise


def _message(frame: str) -> str:
    """What the parser says in its frame: the first paragraph below the title, and the first flag that it proposes."""
    lines = [line.strip("│╭╮╰╯ ") for line in frame.splitlines()][1:]
    paragraphs = [
        " ".join(group) for text, group in itertools.groupby(lines, lambda line: bool(line.strip("─-"))) if text
    ]
    if missing := re.match(r"Missing from [^:]*: (\S+) (.*?)\.? \(required\)", paragraphs[0]):
        return f"{missing[1]} is missing ({missing[2]})"
    if wrong := re.match(r"Error parsing (\S+): (.*)", paragraphs[0]):
        value, number = re.search(r"'(.*)'", wrong[2]), re.search(r"int\(\)|INT|float|FLOAT", wrong[2])
        if value and number:
            return f"{wrong[1]} is {value[0]}: give a {'whole ' if number[0].startswith(('i', 'I')) else ''}number"
    if wrong := re.match(r"invalid choice (.*) for argument '(.*)'. Expected one of \((.*)\)", paragraphs[0]):
        return f"{wrong[2]} is {wrong[1]}: choose from {wrong[3]}"
    if empty := re.match(r"Missing value for argument '(\S+)'", paragraphs[0]):
        return f"{empty[1]} has no value"
    if unknown := re.match(r"Unrecognized options: (.*)", paragraphs[0]):
        given = unknown[1].split(", ")
        if (flag := next((word for word in given if word.startswith("-")), None)) is None:
            return _stray(given[0])
        meant = re.search(r"Perhaps you meant: (--[\w.-]+)", " ".join(paragraphs))
        # The parser proposes any flag of the same group.
        word, proposed = (name.rpartition(".")[2] for name in (flag, meant[1] if meant else ""))
        similar = meant and difflib.get_close_matches(word, [proposed])
        return f"unknown option {flag}{f' (did you mean {meant[1]}?)' if meant and similar else ''}"
    return paragraphs[0].rstrip(".")


def _stray(word: str) -> str:
    """What is said of a word that no option takes."""
    switch = ": a switch is --NAME or --no-NAME, without a value" if word.lower() in ("true", "false") else ""
    return f"{word!r} belongs to no option{switch}"


def _verb(function: Callable[..., None]) -> Callable[[list[str]], None]:
    """A verb whose arguments are those of ``function``."""

    @functools.wraps(function)
    def later(*args: Any, **options: Any) -> Any:
        _must_be_numbers(options)
        return functools.partial(function, *args, **options)  # to run once standard error is its own again

    later.__annotations__ = function.__annotations__ | {"return": Any}

    def verb(argv: list[str]) -> None:
        _parse(later, function.__name__.strip("_").replace("_", " "), argv)()

    verb.__doc__ = function.__doc__
    return verb


def _must_be_numbers(options: dict[str, Any]) -> None:
    """Raise UserError for a number that overflows, NaN and infinity."""
    for name, value in options.items():
        if isinstance(value, int | float) and not abs(value) < 2**31:
            raise UserError(f"--{name.replace('_', '-')} is {value}: give a number below {2**31:,}")


# train, sweep and bench: each field of the config is a flag


@dataclass(frozen=True)
class RunOptions:
    """What ``train`` and ``bench`` take besides the fields of the config."""

    recipe: Positional[Annotated[str | None, tyro.conf.arg(metavar="[RECIPE]")]] = None
    """The named run to start from: see `normatch list recipes`."""
    config: Path | None = None
    """An earlier run, or its config.json, to repeat it; flags change it."""
    scratch: bool = False
    """Start your own photographs from random weights, not from pretrained features."""
    cache: Caching = True


@dataclass(frozen=True)
class TrainOptions(RunOptions):
    out: Path | None = None
    """Folder of the run; runs/NAME by default."""
    resume: bool = False
    """Continue the run in --out from its newest checkpoint."""
    minutes: float | None = None
    """Time for training: sets the steps by the speed measured here."""
    finetune: bool = False
    """After training on pretrained features, train all of the network; flags are for that. On a GPU, with --minutes,
    time that is left is used for it."""


@dataclass(frozen=True)
class SweepOptions(RunOptions):
    grid: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FIELD=VALUE,VALUE...")] = ()
    """Fields and their values, of which every combination is trained: settings.num-weight=1e-7,1e-6 method=normatch."""
    seeds: tuple[int, ...] = (0,)
    """Every combination is trained once with each."""
    out: Path | None = None
    """Folder of the runs; runs/NAME-sweep by default. The same command continues what is in it."""
    processes: int | None = None
    """Runs at once on this machine; by default one for each GPU, or one."""
    slurm: Annotated[str | None, tyro.conf.arg(metavar="PARTITION")] = None
    """Submit the runs to this partition of a Slurm cluster, a job each."""
    dry_run: bool = False
    """Print the runs, and the script for sbatch, and train nothing."""


@dataclass(frozen=True)
class BenchOptions(RunOptions):
    repeats: int = 5
    """Number of timings; their median is reported."""
    seconds: float = 2.0
    """Approximate length of each timing."""
    images: int | None = None
    """Noise images in place of a named data set; by default a few steps' worth."""
    json: Json = False


def _train(argv: list[str]) -> None:
    """Train a recipe, or your own data with --data, into a new folder."""
    from normatch.autoconfig import plan
    from normatch.data import Reading
    from normatch.training.progress import decoding, shown
    from normatch.training.run import Run
    from normatch.training.torchrun import joined, restarted
    from normatch.training.train import run_folder, train

    config, parsed, automatic = _parse_run(TrainOptions, "train", argv)
    with joined(config.device) as world, contextlib.nullcontext() if world.first else _silenced():
        kept = Run(run_folder(config, parsed.out))
        resume = parsed.resume
        if not resume and (resume := world.led(lambda: restarted(kept.path))):
            config = kept.config
        finished = resume and kept.finished
        with decoding() as on_decoded, _or_skipped():
            made = plan(
                config,
                parsed.out,
                resume=resume,
                minutes=None if resume and not parsed.resume else parsed.minutes,
                finetune=parsed.finetune if "finetune" in _given_fields(argv) else None,
                automatic=automatic,
                # A stored config is repeated as it is.
                fixed=_given_fields(argv) | ({"log_every"} if parsed.config else set()),
                reading=Reading(parsed.cache, on_decoded),
            )
        if chosen := made.describe():
            _say(chosen.rstrip("\n"))
        config = world.led(lambda: made.config)
        first = world.led(lambda: None if made.before is None else made.before.config)
        # A run that is resumed keeps its name.
        with shown(f"{kept.config.name if resume else config.name} {config.method}") as progress:
            reading = Reading(parsed.cache)
            run = train(
                config,
                parsed.out,
                first=first,
                resume=resume,
                progress=progress,
                corpus=made.corpus,
                reading=reading,
            )
        _say("\n".join([f"{'already finished: ' if finished else ''}{run.describe()}", *run.describe_baselines()]))
        place = shlex.quote(str(run.path))
        _say(f"next: normatch report {place}, or normatch predict {place} NEW --out labels.csv")


@contextlib.contextmanager
def _silenced() -> Iterator[None]:
    """Within the block nothing is printed: of several processes, the first speaks to the user."""
    with contextlib.ExitStack() as stack:
        nowhere = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
        stack.enter_context(contextlib.redirect_stdout(nowhere))
        stack.enter_context(contextlib.redirect_stderr(nowhere))
        yield


def _sweep(argv: list[str]) -> None:
    """Train a recipe, or your own data, with every combination of some values and seeds."""
    from normatch.autoconfig import choose
    from normatch.data import Reading
    from normatch.training.launch import Launched
    from normatch.training.progress import decoding

    base, parsed, automatic = _parse_run(SweepOptions, "sweep", argv)
    grid = _grid(parsed.grid)
    if len(set(parsed.seeds)) < len(parsed.seeds) or not parsed.seeds:
        raise UserError(f"seeds are {' '.join(map(str, parsed.seeds)) or 'none'}: give one or more different numbers")
    out = parsed.out or Path("runs") / f"{base.name}-sweep"
    runs = []
    for values in itertools.product(*grid.values()):
        flags = [word for name, value in zip(grid, values, strict=True) for word in _flags(name, value)]
        config = _config_of(_parse_from(base, RunOptions, "sweep", flags))
        if automatic:
            if parsed.slurm is not None:
                raise UserError(
                    "--slurm is for recipes and --config: settings for your own data are chosen by the machine that "
                    "trains; call normatch train --data there once, and sweep with --config RUN"
                )
            with decoding() as on_decoded, _or_skipped():
                config = choose(config, _given_fields([*argv, *flags]), Reading(parsed.cache, on_decoded)).config
        words = [f"{name.rpartition('.')[2]}-{value}" for name, value in zip(grid, values, strict=True)]
        for seed in parsed.seeds:
            name = "-".join([*words, f"seed{seed}"]).replace("/", "_")
            runs.append(Launched(config.replace(seed=seed, name=name), out / name))
    failed = _launch(runs, out / ".logs", parsed.processes, parsed.slurm, parsed.dry_run, _say)
    if failed:
        _say(f"normatch: {len(failed)} of {len(runs)} runs failed: {', '.join(failed)}", sys.stderr)
        raise SystemExit(1)
    if not parsed.dry_run and parsed.slurm is None:
        verb = "compare" if len(runs) > 1 else "report"
        _say(f"next: normatch {verb} {shlex.join(str(run.folder) for run in runs)}")


def _grid(words: Sequence[str]) -> dict[str, list[str]]:
    """The values of each field, from ``FIELD=VALUE,VALUE``."""
    grid: dict[str, list[str]] = {}
    for word in words:
        name, equals, values = word.lstrip("-").partition("=")
        each = values.split(",")
        if not equals or name in grid or not all(each) or len(set(each)) < len(each):
            raise UserError(f"--grid has {word!r}: give each field once, as FIELD=VALUE,VALUE, and different values")
        if name in ("seed", "name", *(f.name for f in dataclasses.fields(SweepOptions))):
            raise UserError(f"--grid has {word!r}: seeds are --seeds, and only fields of the config can vary")
        grid[name] = each
    return grid


def _flags(name: str, value: str) -> list[str]:
    """The flag of train for a value in a grid; true and false are on and off."""
    outer, dot, inner = name.rpartition(".")
    on_or_off = {"true": f"--{name}", "false": f"--{outer}{dot}no-{inner}"}
    return [on_or_off[value.lower()]] if value.lower() in on_or_off else [f"--{name}", value]


def _launch(
    runs: "list[Launched]",
    logs: Path,
    processes: int | None,
    slurm: str | None,
    dry_run: bool,
    tell: Callable[[str], None],
) -> list[str]:
    """Train or submit what is left of ``runs``, and return the names of those that failed."""
    from normatch.training.launch import sbatch, submit, train_here, unfinished

    if processes is not None and processes < 1:
        raise UserError(f"processes is {processes}: give 1 or more")
    to_train = unfinished(runs)
    for run in runs if dry_run else ():
        tell(f"{run.folder}{'' if run in to_train else ', finished'}")
    tell(f"{counted(len(runs), 'run')}, {len(to_train)} left")
    if dry_run:
        if slurm and to_train:
            tell(sbatch(to_train, logs, slurm).rstrip())
    elif slurm is not None:
        for run, job in zip(to_train, submit(to_train, logs, slurm), strict=True):
            tell(f"submitted {run.folder} as job {job.job_id}")
    else:
        return train_here(to_train, logs, processes, tell)
    return []


def _bench(argv: list[str]) -> None:
    """Time the training step of a recipe, or of your own data with --data, on this machine."""
    from normatch.autoconfig import Plan, choose
    from normatch.data import Reading
    from normatch.training.bench import bench, describe
    from normatch.training.progress import Lines, decoding
    from normatch.training.torchrun import joined

    config, parsed, automatic = _parse_run(BenchOptions, "bench", argv)
    made = Plan(config)
    with joined(config.device) as world, contextlib.nullcontext() if world.first else _silenced():
        if automatic:
            # Time the settings that `normatch train` would choose.
            with decoding() as on_decoded, _or_skipped():
                made = choose(config, _given_fields(argv), Reading(parsed.cache, on_decoded))
        report = bench(
            world.led(lambda: made.config),
            repeats=parsed.repeats,
            seconds=parsed.seconds,
            images=parsed.images,
            corpus=made.corpus,
            progress=Lines(f"{config.name} {config.method}"),
        )
        _say(jsonlib.dumps(report) if parsed.json else describe(report))


def _parse_run(options: type[Any], verb: str, argv: list[str]) -> "tuple[Config, Any, bool]":
    """The config, an object with the verb's own options, and whether what is not given is to be chosen for the data."""
    recipe = argv[0] if argv and not argv[0].startswith("-") else None
    base, automatic = _base(recipe, argv)
    parsed = _parse_from(base, options, verb, argv)
    if parsed.recipe != recipe:
        # The recipe came after a flag, so only the whole parse could find it: parse again with its defaults.
        base, automatic = _base(parsed.recipe, argv)
        parsed = _parse_from(base, options, verb, argv)
    _must_be_numbers({f.name: getattr(parsed, f.name) for f in dataclasses.fields(options)})
    if not parsed.labelled and "labelled" in _given_fields(argv):
        raise UserError("--labelled names nothing: give runs, tables or files of positions, or leave it out")
    if parsed.scratch and parsed.freeze:
        raise UserError("--scratch starts from random weights and --freeze keeps pretrained ones: give one of them")
    if parsed.scratch and (parsed.start is not None or getattr(parsed, "finetune", False)):
        raise UserError("--scratch starts from random weights, --start and --finetune from trained ones: leave it out")
    return _config_of(parsed), parsed, automatic


def _config_of(parsed: Any) -> "Config":
    """The config of what was parsed."""
    from normatch.config import Config

    return Config(**{f.name: getattr(parsed, f.name) for f in dataclasses.fields(Config)})


def _base(recipe: str | None, argv: list[str]) -> "tuple[Config, bool]":
    """The config whose values are the defaults of the flags, and whether it is a draft for the user's own data."""
    from normatch.config import read_config
    from normatch.recipes import own, recipes
    from normatch.training.run import Run
    from normatch.training.train import run_folder

    data, file, out, name = (_value_of(argv, flag) for flag in ("--data", "--config", "--out", "--name"))
    if recipe is not None and recipe.lower() in ("true", "false"):
        raise UserError(_stray(recipe))
    if recipe is not None and recipe not in recipes and Path(recipe).exists():
        quoted = shlex.quote(recipe)
        raise UserError(f"unknown recipe {recipe!r}, but there is such a path: give your own data as --data {quoted}")
    if recipe is not None and file is not None:
        raise UserError(f"recipe is {recipe!r} and config is {file!r}: give one of them")
    base, automatic = recipes.get(recipe or DEFAULT_RECIPE).build(), False
    if file is not None:
        base = read_config(Path(file, "config.json") if Path(file).is_dir() else Path(file))
    elif recipe is None and data is not None and data != base.data:
        base, automatic = own(data), True
    if "--resume" not in argv:
        return base, automatic
    # The defaults of a resumed run are the values in its own config.json, which may not be those of the recipe.
    folder = run_folder(base.replace(name=name or base.name), out)
    begun = Run.open(folder).config
    if recipe is not None and begun.data != base.data:
        raise UserError(f"{folder} is a run on {begun.data}, {recipe} is on {base.data}: resume it without {recipe}")
    return begun, False


def _parse_from(base: "Config", options: type[Any], verb: str, argv: list[str]) -> Any:
    """Parse ``argv`` into an object with the fields of the config, with the values of ``base`` as defaults, and of the
    verb's own options. ``settings`` has the type of the method's settings, so that each of them is a flag."""
    from normatch.config import Config

    method = _value_of(argv, "--method")
    if method is not None:
        base = base.replace(method=method)
    # Without the checks of a Config, which is built of the parsed values and then checks itself.
    about = (VERBS[verb].__doc__ or "").splitlines()[0]
    unchecked = {"__post_init__": lambda self: None, "__doc__": f"{about} The defaults are those of {base.name}."}
    flags = dataclasses.make_dataclass(verb.title(), [], bases=(Config, options), frozen=True, namespace=unchecked)
    default = flags(**{f.name: getattr(base, f.name) for f in dataclasses.fields(Config)})
    return _parse(flags, verb, argv, default)


def _given_fields(argv: list[str]) -> frozenset[str]:
    """The names of all flags in ``argv``, spelt as attributes: ``--log-every 3`` gives ``log_every``."""
    flags = (word[2:].split("=", 1)[0] for word in argv if word.startswith("--"))
    names = {re.sub(r"(^|\.)no-", r"\1", flag).replace("-", "_") for flag in flags}
    return frozenset(names | ({"freeze"} if "scratch" in names else set()))


def _value_of(argv: list[str], flag: str) -> str | None:
    for word, following in itertools.pairwise([*argv, ""]):
        if word == flag:
            return following
        if word.startswith(f"{flag}="):
            return word.split("=", 1)[1]
    return None


@contextlib.contextmanager
def _or_skipped() -> Iterator[None]:
    """Within the block, the error of unreadable images also names the flag that leaves them out."""
    from normatch.data.images import BadImages

    try:
        yield
    except BadImages as error:
        raise UserError(f"{error}, or leave such out with --on-bad-image skip") from error


# finished runs


@dataclass(frozen=True)
class DataOptions:
    """Where the data of a finished run is now, and how to read it."""

    data: str | None = None
    """The folder, CSV manifest or .npz file that a run was trained on, if it has moved since."""
    unlabelled: Path | None = None
    """The folder of more images without labels, if it has moved."""
    data_root: Path | None = None
    """Folder that holds the data sets' files, if it has moved."""
    device: Device = "auto"
    cache: Caching = True

    @contextlib.contextmanager
    def read(self) -> Iterator[dict[str, Any]]:
        """These options as arguments, with a progress bar for images that are decoded."""
        from normatch.data import Reading
        from normatch.training.progress import decoding
        from normatch.training.run import Moved

        with decoding() as on_decoded:
            moved = Moved(self.data, self.unlabelled, self.data_root)
            yield {"moved": moved, "device": self.device, "reading": Reading(self.cache, on_decoded)}


DataFlags = Annotated[DataOptions, tyro.conf.arg(name="")]
AS_TRAINED = DataOptions()
Name = Positional[Annotated[str, tyro.conf.arg(metavar="NAME")]]


def _eval(
    run: RunFolder,
    on: Literal["auto", "test", "validation"] = "auto",
    where: DataFlags = AS_TRAINED,
    json: Json = False,
) -> None:
    """Score a finished run on its held-out images.

    Args:
        on: Which images; auto is the test set or, if there is none, the validation images.
    """
    from normatch.evaluate.held_out import describe, evaluate_run

    with where.read() as how:
        report = evaluate_run(run, on=on, **how)
    _say(jsonlib.dumps(report) if json else describe(report))


def _predict(
    run: RunFolder,
    inputs: Positional[Annotated[tuple[Path, ...], tyro.conf.arg(metavar="INPUT [INPUT ...]")]],
    out: Path | None = None,
    on_bad_image: Literal["stop", "skip"] = "stop",
    batch: int | None = None,
    calibrated: bool = True,
    using: Annotated[Literal["model", "baseline"], tyro.conf.arg(name="with")] = "model",
    device: Device = "auto",
    force: Force = False,
) -> None:
    """Label images with a trained model.

    Args:
        inputs: Image files, folders, CSV files that list images, one .npy or .npz file, or - for paths on standard
            input, one per line.
        out: Table to write, a .csv or .parquet file; standard output by default.
        on_bad_image: On an unreadable image, stop without writing --out, or skip it and name it at the end.
        batch: Images that go through the network at once; by default 256, or fewer if they are large.
        calibrated: Divide the logits by the temperature that was fitted on the run's validation images, if it was.
        using: The model, or the logistic regression of a run on your own data.
    """
    from normatch.evaluate.predict import predict_to

    with _or_skipped():
        said = predict_to(
            run,
            inputs,
            out,
            on_bad=on_bad_image,
            batch=batch,
            calibrated=calibrated,
            using=using,
            device=device,
            force=force,
        )
    _say(said, sys.stderr if out is None else None)


def _suggest(
    run: Positional[Annotated[Path | None, tyro.conf.arg(metavar="[RUN]")]] = None,
    labels: Annotated[int, tyro.conf.arg(aliases=["--count"])] = 20,
    out: Path | None = None,
    sheet: Path | None = None,
    seed: int = 0,
    where: DataFlags = AS_TRAINED,
    force: Force = False,
) -> None:
    """Suggest what to label next: one image of each cluster that has no label yet.

    The clusters are of what a run has learned or, without RUN, of pretrained features of --data.

    Args:
        run: Folder of a run, or none for what to label first.
        labels: How many images to suggest.
        out: Table to write, a .csv or .parquet file; standard output by default. Of files, it is a manifest with labels
            to fill in, for train --labelled.
        sheet: Image file to write: the suggested images under the classes that the run predicts.
        seed: Draws the images to look at if there are more than 20,000, and the first clusters.
    """
    from normatch.evaluate.suggest import suggest_first_to, suggest_to
    from normatch.training.progress import shown

    if run is None and where.data is None:
        raise UserError("suggest needs a run, or --data with the folder of pictures that have no label yet")
    with where.read() as how:
        if run is not None:
            said = suggest_to(run, labels, out, sheet, force=force, seed=seed, **how)
        else:
            how = {"unlabelled": where.unlabelled, "device": where.device, "reading": how["reading"], "seed": seed}
            with shown("suggest") as progress:
                said = suggest_first_to(
                    Path(str(where.data)), labels, out, sheet, force=force, progress=progress, **how
                )
    _say(said, sys.stderr if out is None else None)


def _export(
    run: RunFolder, format: Literal["onnx", "torch"] = "onnx", out: Path | None = None, force: Force = False
) -> None:
    """Turn a trained model, preprocessing included, into one ONNX or torch file.

    Args:
        format: onnx for ONNX runtimes, torch for torch.export.load.
        out: File to write; model.onnx or model.pt2 in the run's folder by default.
    """
    from normatch.evaluate.export import export_run

    _say(str(export_run(run, format, out, force=force)))


def _report(
    run: RunFolder, out: Path | None = None, where: DataFlags = AS_TRAINED, force: bool = False, json: bool = False
) -> None:
    """Write the page of a finished run: accuracy, curves, confusion, calibration, disputed images.

    Args:
        out: File to write; RUN/report.html by default.
        force: Replace --out if it exists, or the report of a run whose data cannot be read again.
        json: Print the numbers of the page as one JSON object instead.
    """
    from normatch.report import next_steps, numbers_of, write_report
    from normatch.training.run import Run

    if json and out is not None:
        raise UserError("--json prints the numbers and writes no page: leave out --json or --out")
    with where.read() as how:
        if json:
            print(jsonlib.dumps(numbers_of(run, **how)))
            return
        tell = functools.partial(_say, file=sys.stderr)
        page = write_report(run, out, **how, force=force, tell=tell)
    _say(str(page))
    for step in next_steps(Run.open(run)):
        tell(f"next: {step['command']}")


def _compare(
    runs: Positional[Annotated[tuple[Path, ...], tyro.conf.arg(metavar="RUN [RUN ...]")]],
    out: Path | None = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Put finished runs side by side: settings that differ, accuracies, who won on the same images.

    Args:
        runs: Folders of the runs; their data is not needed.
        out: HTML page to write as well.
    """
    from normatch.report import compare, describe, write_comparison

    comparison = compare(runs)
    page = write_comparison(comparison, out, force=force) if out else None
    _say(jsonlib.dumps(comparison) if json else describe(comparison))
    if page and not json:
        _say(f"\n{page}")


# everything else


def _list(
    what: Positional[Annotated[Literal["methods", "datasets", "backbones", "recipes"], tyro.conf.arg(metavar="WHAT")]],
    json: bool = False,
) -> None:
    """List the methods, datasets, backbones or recipes that a config may name.

    Args:
        what: methods, datasets, backbones or recipes.
        json: Print a JSON array of objects with name and summary; of methods, also paper and year.
    """
    from normatch.data import sources
    from normatch.methods import methods
    from normatch.nets import backbones
    from normatch.recipes import recipes
    from normatch.text import aligned

    registries: dict[str, Any] = {"methods": methods, "datasets": sources, "backbones": backbones, "recipes": recipes}
    rows = [{"name": name, "summary": entry.summary} for name, entry in registries[what].items()]
    if what == "methods":
        papers = (methods.get(row["name"]).paper for row in rows)
        rows = [row | {"paper": paper, "year": paper[-4:]} for row, paper in zip(rows, papers, strict=True)]
    if json:
        print(jsonlib.dumps(rows))
    else:
        shown = [name for name in ("name", "paper", "summary") if name in rows[0]]
        _say("\n".join(aligned([[row[name] for name in shown] for row in rows])))


def _data_get(name: Name, root: Root = None) -> None:
    """Download a data set from its own site, check it, and keep it where training looks for it.

    Args:
        name: The data set: see `normatch list datasets`.
    """
    from normatch.data import data_root, get
    from normatch.training.progress import downloading

    with downloading() as progress:
        files = get(name, root or data_root(), progress)
    _say("\n".join(map(str, files)) or f"{name} comes with an installed package: nothing to fetch")


def _data_inspect(
    data: Positional[Annotated[str, tyro.conf.arg(metavar="DATA")]],
    unlabelled: Path | None = None,
    root: Root = None,
    sheet: Path | None = None,
    force: Force = False,
    cache: Caching = True,
    json: bool = False,
) -> None:
    """Count and compare what is in a data set: classes, sizes, unreadable files, duplicates, leaks, conflicts.

    Args:
        data: A folder of images, a CSV manifest, an .npz file or the name of a data set.
        unlabelled: A folder of more images without labels.
        sheet: Image file to write: some images of each class under its name.
        json: Print one JSON object, with all files and groups.
    """
    from normatch.data import Reading
    from normatch.data.inspect import describe, inspect
    from normatch.training.progress import decoding

    with decoding() as on_decoded:
        reading = Reading(cache, on_decoded)
        report = inspect(data, root, unlabelled=unlabelled, sheet=sheet, force=force, reading=reading)
    _say(jsonlib.dumps(report) if json else describe(report))


def _data_cache(clear: bool = False) -> None:
    """Show or clear the decoded images that are kept, in $NORMATCH_CACHE or ~/.cache/normatch/decoded.

    Args:
        clear: Delete them all.
    """
    from normatch.data.cache import Cache

    cache = Cache()
    held = f"{counted(len(cache.entries()), 'entry', 'entries')}, {cache.size() / 1e6:,.1f} MB: {cache.folder}"
    if clear:
        cache.keep(0)
    _say(f"deleted {held}" if clear else held)


def _reproduce(
    name: Name,
    steps: int | None = None,
    seeds: tuple[int, ...] = (),
    only: tuple[str, ...] = (),
    minutes: float | None = None,
    data: str | None = None,
    data_root: Root = None,
    device: Device = "auto",
    out: Path = Path("runs/reproduce"),
    processes: int | None = None,
    slurm: Annotated[str | None, tyro.conf.arg(metavar="PARTITION")] = None,
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Train what a table or figure of the paper needs, and fill it.

    Called again, it continues where it was stopped.

    Args:
        name: table1 to table7, figure3 to figure5, controls (that the paper lacks), choices (what it leaves open), fast
            (the recipe cifar10-40-fast), methods (all of them on digits), all, or grid (the runs that settle the main
            claims, in a fixed order).
        steps: Steps of each run, to which the paper's schedule is scaled down; by default the whole schedule.
        seeds: Label seeds; every row is trained once with each. By default 0 1 2; those of the grid are fixed.
        only: Train only the runs whose name contains one of these words.
        minutes: Stop after so many minutes; the same command continues.
        data: Another data set in place of CIFAR-10 with 40 labels: digits, for a machine without a GPU.
        out: Folder for the runs, their results as JSON files, and results.md.
        processes: Train so many runs at once, each in a process of its own, on one GPU each if there are several; by
            default one after another in this process.
        slurm: Submit the runs to this partition of a Slurm cluster, a job each; the same command without it, later,
            fills the tables.
        dry_run: Print the runs and what is left of them, and train nothing.
        json: Print one JSON object: the runs and, unless --dry-run, the tables and the runs that failed.
    """
    from normatch.reproduce.grid import plan
    from normatch.reproduce.pages import plain
    from normatch.training.launch import Launched

    if minutes is not None and minutes <= 0:
        raise UserError(f"minutes is {minutes}: give a number above 0")
    grid = plan(name, steps=steps, seeds=seeds, only=only, data=data, data_root=data_root, device=device, out=out)
    if not json:
        _say(grid.describe())
    elif dry_run:
        print(jsonlib.dumps(grid.to_json()))
    tell = functools.partial(_say, file=sys.stderr if json else None)
    failed: list[str] = []
    if slurm is not None or processes is not None:
        if minutes is not None:
            raise UserError("--minutes is for runs one after another: leave it out, or --processes and --slurm")
        launched = [Launched(run.config, run.folder) for run in grid.left]
        failed = _launch(launched, out / "logs", processes, slurm, dry_run, tell)
    if dry_run or slurm is not None:
        return
    try:
        failed += grid.train(tell, minutes, failed)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("run it again to continue") from None
    tables = grid.tables()
    if json:
        filled = {table.study.name: table.to_json() for table in tables}
        print(jsonlib.dumps(grid.to_json() | {"tables": filled, "failed": failed}))
    else:
        _say("\n" + "\n\n".join(map(plain, tables)) + f"\n\n{grid.write_page()}")
        _say(grid.describe_left())
    if failed:
        _say(f"normatch: {len(failed)} of {len(grid.runs)} runs failed: {', '.join(failed)}", sys.stderr)
        raise SystemExit(1)


def _demo(seed: int = 0, out: Path | None = None, steps: int | None = None) -> None:
    """Compare four methods on the same 40 labelled digits, in about a minute.

    Args:
        seed: Draws the labels and the held-out digits.
        out: New folder for the runs; by default they are not kept.
        steps: Training steps of each method; the recipe's by default.
    """
    from normatch.demo import run_demo

    run_demo(seed, out, steps)


VERBS: dict[str, Callable[[list[str]], None]] = {
    "train": _train,
    "sweep": _sweep,
    "eval": _verb(_eval),
    "predict": _verb(_predict),
    "suggest": _verb(_suggest),
    "report": _verb(_report),
    "compare": _verb(_compare),
    "export": _verb(_export),
    "list": _verb(_list),
    "data get": _verb(_data_get),
    "data inspect": _verb(_data_inspect),
    "data cache": _verb(_data_cache),
    "reproduce": _verb(_reproduce),
    "bench": _bench,
    "demo": _verb(_demo),
}
"""The verbs; the first line of each docstring is what ``normatch --help`` says of it."""
