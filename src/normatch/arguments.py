"""Typed command-line arguments: parsed by tyro, with errors of one line."""

import contextlib
import dataclasses
import functools
import inspect
import io
import os
import re
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import tyro

from normatch.config import Config
from normatch.data import sources
from normatch.engine.run import Run
from normatch.engine.train import run_folder
from normatch.errors import UserError
from normatch.recipes import own, recipes

__all__ = ["named_fields", "option", "parse", "parse_action", "parse_run", "with_absolute_paths"]

DEFAULT = "digits-40"
"""The recipe where none is named."""


def parse(kind: Any, verb: str, argv: list[str]) -> Any:
    """Call or build ``kind`` from ``argv``; wrong arguments are a UserError."""
    shown = io.StringIO()
    try:
        with contextlib.redirect_stderr(shown):
            parsed = tyro.cli(_later(kind), prog=f"normatch {verb}", args=argv)
    except SystemExit as stop:
        if stop.code:
            flags = [f"--{name.replace('_', '-')}" for name in inspect.signature(kind).parameters]
            raise UserError(f"{verb}: {_one_line(shown.getvalue(), flags)}; see normatch {verb} --help") from None
        raise
    return parsed() if inspect.isfunction(kind) else parsed


def _later(kind: Any) -> Any:
    """A function in the place of ``kind`` that does not run yet: what it says on standard error is not the parser's."""
    if not inspect.isfunction(kind):
        return kind

    @functools.wraps(kind)
    def later(*args: Any, **options: Any) -> Any:
        return functools.partial(kind, *args, **options)

    later.__annotations__ = kind.__annotations__ | {"return": Any}
    return later


def parse_action(actions: dict[str, Callable[..., None]], verb: str, argv: list[str]) -> None:
    """Call the action that ``argv`` names first, with the rest as its arguments."""
    if argv and argv[0] in actions:
        parse(actions[argv[0]], f"{verb} {argv[0]}", argv[1:])
    elif argv and argv[0] in ("-h", "--help"):
        about = "\n".join(f"  {name:<9}{(action.__doc__ or '').splitlines()[0]}" for name, action in actions.items())
        print(f"usage: normatch {verb} ACTION [options]\n\n{about}\n\nnormatch {verb} ACTION --help explains one.")
        raise SystemExit(0)
    else:
        wrong = f"unknown action {argv[0]!r}" if argv else "no action"
        raise UserError(f"{verb}: {wrong}: choose from {', '.join(actions)}")


def named_fields(argv: list[str]) -> frozenset[str]:
    """The fields of the config that stand on the command line, as attributes are written."""
    flags = (word[2:].split("=", 1)[0] for word in argv if word.startswith("--"))
    return frozenset(flag.replace("-", "_") for flag in flags)


def option(kind: Any, default: Any, about: str) -> tuple[Any, Any]:
    """A flag of a verb's own, beside the config's: its type with the help text, and its default."""
    return Annotated[kind, tyro.conf.arg(help=about)], default


def parse_run(verb: str, argv: list[str], own_options: dict[str, tuple[Any, Any]]) -> tuple[Config, Any]:
    """A config, any field of which is a flag, and the verb's own options.

    The recipe, or with --resume the run itself, gives the defaults. ``recipe`` among the options is None where the
    data is the user's own.
    """
    first = argv[0] if argv and not argv[0].startswith("-") else None
    base = _base(first, argv)
    assumed = first or (None if base.data not in sources else DEFAULT)
    given = _parse_from(base, assumed, verb, argv, own_options)
    if given.recipe != assumed:
        # The recipe stands behind a flag, where only a parser that knows the flags can find it.
        given = _parse_from(_base(given.recipe, argv), given.recipe, verb, argv, own_options)
    return Config(**{f.name: getattr(given, f.name) for f in dataclasses.fields(Config)}), given


def with_absolute_paths(config: Config) -> Config:
    """The config with absolute paths: what a run keeps must be right from any working directory."""

    def absolute(path: Path | None) -> Path | None:
        return None if path is None else Path(os.path.abspath(path.expanduser()))

    data = config.data if config.data in sources else str(absolute(Path(config.data)))
    return config.replace(data=data, unlabelled=absolute(config.unlabelled), data_root=absolute(config.data_root))


def _base(recipe: str | None, argv: list[str]) -> Config:
    """Where the defaults come from."""
    data = _value_of(argv, "--data")
    if recipe is not None and recipe not in recipes and Path(recipe).expanduser().exists():
        quoted = shlex.quote(recipe)
        raise UserError(f"unknown recipe {recipe!r}, but there is such a path: give your own data as --data {quoted}")
    if recipe is not None and recipe not in recipes and data is not None:
        raise UserError(
            f"unknown recipe {recipe!r} beside --data {data}: put quotes round a path with blanks, or leave it out"
        )
    if recipe is None and data is not None and data not in sources:
        base = own(data)
    else:
        base = recipes.get(recipe or DEFAULT).build()
    if "--resume" not in argv:
        return base
    # What was chosen when the run began is known only to the run.
    out, name = _value_of(argv, "--out"), _value_of(argv, "--name")
    folder = run_folder(base.replace(name=name or base.name), Path(out) if out is not None else None)
    begun = Run.open(folder).config
    if recipe is not None and begun.data != base.data:
        raise UserError(f"{folder} is a run on {begun.data}, {recipe} one on {base.data}: resume it without {recipe}")
    return begun


def _parse_from(
    base: Config, recipe: str | None, verb: str, argv: list[str], own_options: dict[str, tuple[Any, Any]]
) -> Any:
    """Parsed into a dataclass of the config's fields and the verb's own, the settings by their real type."""
    method = _value_of(argv, "--method")
    if method is not None:
        base = base.replace(method=method)
    kinds = {f.name: f.type for f in dataclasses.fields(base)} | {"settings": type(base.settings)}
    options = {name: (kind, getattr(base, name)) for name, kind in kinds.items()}
    # The folder of a class tree may be spelt either way, and so may this.
    options["unlabelled"] = (Annotated[Path | None, tyro.conf.arg(aliases=["--unlabeled"])], base.unlabelled)
    options["recipe"] = option(Annotated[str | None, tyro.conf.Positional], recipe, "The named run to start from.")
    fields = [
        (name, kind, dataclasses.field(default=default)) for name, (kind, default) in (options | own_options).items()
    ]
    # The config that is built from these checks itself, where its errors are the user's.
    arguments = dataclasses.make_dataclass(
        verb.title(), fields, bases=(Config,), frozen=True, namespace={"__post_init__": lambda self: None}
    )
    about = recipes.get(recipe).summary if recipe is not None else "your own data."
    arguments.__doc__ = f"{verb.title()} {base.name}: {about}"
    return parse(arguments, verb, argv)


def _value_of(argv: list[str], flag: str) -> str | None:
    for i, word in enumerate(argv):
        if word == flag and i + 1 < len(argv):
            return argv[i + 1]
        if word.startswith(f"{flag}="):
            return word.split("=", 1)[1]
    return None


def _one_line(box: str, flags: Iterable[str]) -> str:
    """The message of the parser's framed text, and the flag it suggests, or the one of ``flags`` that the wrong one
    begins with: --batch for --batch-size.

    The frame's sections are parted by rules; drawn in ASCII, it begins with a section that is only a title.
    """
    sections: list[list[str]] = [[]]
    for line in (re.sub(r"^[│|]\s?|\s*[│|]$", "", line).strip() for line in box.splitlines()):
        if line and set(line) <= {"─", "-"}:
            sections.append([])
        elif line and not line.startswith(("╭", "╰")):
            sections[-1].append(line)
    message = " ".join(sections[0] if "╭" in box else sections[min(1, len(sections) - 1)])
    number = re.match(r"Error parsing (\S+): .*(int|float)\W.*'(.*)'$", message)
    if number:
        flag, kind, value = number.groups()
        return f"{flag} is {value!r}: give a {'whole number' if kind == 'int' else 'number'}"
    close = next((s[1].split()[0].rstrip(",") for s in sections if s and s[0].startswith("Perhaps you meant")), None)
    wrong = re.match(r"Unrecognized options: (--[^\s,=]+)", message)
    if wrong and not close:
        close = max((flag for flag in flags if wrong[1].startswith(flag)), key=len, default=None)
    return message.rstrip(".") + (f"; did you mean {close}?" if close else "")
