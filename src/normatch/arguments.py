"""Typed command-line arguments, parsed by tyro; parse errors are reported as one-line UserErrors."""

import contextlib
import dataclasses
import functools
import inspect
import io
import itertools
import re
import shlex
import typing
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import tyro

from normatch.config import Config
from normatch.data.images import BadImages
from normatch.errors import UserError
from normatch.methods import methods
from normatch.recipes import own, recipes
from normatch.training.run import Run
from normatch.training.train import run_folder

__all__ = ["named_fields", "option", "or_skipped", "parse", "parse_action", "parse_run"]

DEFAULT_RECIPE = "digits-40"
"""The recipe used when the command line names neither a recipe nor data."""

TRUTHS = frozenset({"true", "false", "yes", "no", "on", "off", "1", "0"})
"""Words that, after a flag without a value, are most likely meant as one."""


def parse(kind: Any, verb: str, argv: list[str]) -> Any:
    """Call the function, or build the dataclass, ``kind`` with the arguments ``argv``; UserError if they are wrong."""
    _must_have_no_value(_switches(kind), verb, argv)
    _must_be_given_once(verb, argv)
    shown = io.StringIO()
    try:
        with contextlib.redirect_stderr(shown):
            parsed = tyro.cli(_deferred(kind), prog=f"normatch {verb}", args=argv)
    except SystemExit as stop:
        if stop.code:
            # Without groups of flags, such as settings: there is no flag of that name.
            single = [
                p for p in inspect.signature(kind).parameters.values() if not dataclasses.is_dataclass(p.annotation)
            ]
            flags = [f"--{p.name.replace('_', '-')}" for p in single]
            method = _value_of(argv, "--method")
            there = f"{verb} --method {method}" if method and "--settings." in shown.getvalue() else verb
            what = _one_line(shown.getvalue(), flags)
            if what.startswith("Unrecognized"):
                of_run: str = getattr(kind, "method", Config.method)
                what = _setting_of_another(argv, method or of_run) or what
            raise UserError(f"{verb}: {what}; see normatch {there} --help") from None
        raise
    return parsed() if inspect.isfunction(kind) else parsed


def _setting_of_another(argv: list[str], method: str) -> str | None:
    """What is wrong if a flag sets what only methods other than ``method`` have; None if no flag does."""
    settings = {name: {f.name for f in dataclasses.fields(kind.Settings)} for name, kind in methods.items()}
    for word in argv:
        name = word.split("=")[0].removeprefix("--settings.").replace("-", "_").removeprefix("no_")
        having = [other for other, names in settings.items() if name in names]
        if word.startswith("--settings.") and having and method not in having:
            has = "has" if len(having) == 1 else "have"
            return f"method {method!r} has no setting {name}, {' and '.join(having)} {has} it"
    return None


def _switches(kind: Any, prefix: str = "--") -> dict[str, str]:
    """The flags of ``kind`` that take no value, each with the one that turns it off."""
    found: dict[str, str] = {}
    for name, hint in typing.get_type_hints(kind).items():
        flag = name.replace("_", "-")
        if hint is bool:
            found[f"{prefix}{flag}"] = f"{prefix}no-{flag}"
        elif dataclasses.is_dataclass(hint):
            found |= _switches(hint, f"{prefix}{flag}.")
    return found


def _must_be_given_once(verb: str, argv: list[str]) -> None:
    """Raise UserError if data is given more than once: the parser would take the last alone."""
    flags = [word.split("=")[0].replace("labelled", "labeled") for word in argv]
    all_in_one = "with a folder that has all in it"
    for flag, how in (("--data", all_in_one), ("--unlabeled", all_in_one), ("--labeled", "with all places after it")):
        if flags.count(flag) > 1:
            raise UserError(f"{verb}: {flag} is given {flags.count(flag)} times: give it once, {how}")


def _must_have_no_value(switches: dict[str, str], verb: str, argv: list[str]) -> None:
    """Raise UserError if a switch is given a value: the parser would take it for a recipe or a file."""
    pairs = {flag: pair for pair in switches.items() for flag in pair}
    for word, following in itertools.pairwise([*argv, ""]):
        flag, equals, value = word.partition("=")
        given = value if equals else following
        meant = equals or (given.lower() in TRUTHS and not Path(given).exists())
        if meant and (pair := pairs.get(flag.replace("_", "-"))):
            raise UserError(
                f"{verb}: {flag} is {given!r}, but takes no value: give {pair[0]} to turn it on or {pair[1]} to turn "
                "it off"
            )


def _deferred(kind: Any) -> Any:
    """If ``kind`` is a function, a wrapper that returns the call instead of running it.

    Standard error is captured while the parser runs; the function itself must run after that.
    """
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
    """The names of all flags in ``argv``, spelt as attributes: ``--batch-size 3`` gives ``batch_size``."""
    flags = (word[2:].split("=", 1)[0] for word in argv if word.startswith("--"))
    return frozenset(flag.replace("-", "_") for flag in flags)


def option(kind: Any, default: Any, about: str) -> tuple[Any, Any]:
    """An extra flag of one verb, next to those of the config: (its type annotated with the help text, its default)."""
    return Annotated[kind, tyro.conf.arg(help=about)], default


def parse_run(verb: str, argv: list[str], own_options: dict[str, tuple[Any, Any]]) -> tuple[Config, Any]:
    """The config (each of its fields is a flag) and an object with the verb's own options as attributes.

    Defaults come from the recipe or, with --resume, from the config of the run. The option ``recipe`` is None for data
    without a recipe: the user's own, or a data set that only --data names.
    """
    first = argv[0] if argv and not argv[0].startswith("-") else None
    base = _base(first, argv)
    assumed = first or (DEFAULT_RECIPE if base.data == recipes.get(DEFAULT_RECIPE).build().data else None)
    given = _parse_from(base, assumed, verb, argv, own_options)
    if given.recipe != assumed:
        # The recipe came after a flag, so only the full parse could find it: parse again with its defaults.
        given = _parse_from(_base(given.recipe, argv), given.recipe, verb, argv, own_options)
    return Config(**{f.name: getattr(given, f.name) for f in dataclasses.fields(Config)}), given


def _base(recipe: str | None, argv: list[str]) -> Config:
    """The config whose values are the defaults of the flags."""
    data = _value_of(argv, "--data")
    if recipe is not None and recipe not in recipes and Path(recipe).expanduser().exists():
        quoted = shlex.quote(recipe)
        raise UserError(f"unknown recipe {recipe!r}, but there is such a path: give your own data as --data {quoted}")
    if recipe is not None and recipe not in recipes and data is not None:
        raise UserError(
            f"unknown recipe {recipe!r} with --data {data}: put quotes around a path with spaces, or leave it out"
        )
    base = recipes.get(recipe or DEFAULT_RECIPE).build()
    if recipe is None and data is not None and data != base.data:
        base = own(data)
    if "--resume" not in argv:
        return base
    # The defaults of a resumed run are the values in its own config.json, which may not be those of the recipe.
    out, name = _value_of(argv, "--out"), _value_of(argv, "--name")
    folder = run_folder(base.replace(name=name or base.name), Path(out) if out is not None else None)
    begun = Run.open(folder).config
    if recipe is not None and begun.data != base.data:
        raise UserError(f"{folder} is a run on {begun.data}, {recipe} is on {base.data}: resume it without {recipe}")
    return begun


def _parse_from(
    base: Config, recipe: str | None, verb: str, argv: list[str], own_options: dict[str, tuple[Any, Any]]
) -> Any:
    """Parse ``argv`` into a dataclass with the fields of the config and the verb's own options.

    The field ``settings`` has the type of the method's settings, so that each of them is a flag.
    """
    method = _value_of(argv, "--method")
    if method is not None:
        base = base.replace(method=method)
    kinds = {f.name: f.type for f in dataclasses.fields(base)} | {"settings": type(base.settings)}
    options = {name: (kind, getattr(base, name)) for name, kind in kinds.items()}
    # Both spellings are accepted, as for the folder of unlabelled images in a class tree.
    for name in ("labelled", "unlabelled"):
        alias = tyro.conf.arg(aliases=[f"--{name.replace('labelled', 'labeled')}"])
        options[name] = (Annotated[kinds[name], alias], getattr(base, name))
    options["recipe"] = option(Annotated[str | None, tyro.conf.Positional], recipe, "The named run to start from.")
    fields = [
        (name, kind, dataclasses.field(default=default)) for name, (kind, default) in (options | own_options).items()
    ]
    # No validation here: parse_run builds a Config from the parsed values, which validates itself.
    arguments = dataclasses.make_dataclass(
        verb.title(), fields, bases=(Config,), frozen=True, namespace={"__post_init__": lambda self: None}
    )
    about = recipes.get(recipe).summary if recipe is not None else "what is not given is chosen for its data."
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
    """The error message in the parser's framed output, as one line with a suggested flag.

    The suggestion is the parser's or, failing that, the longest of ``flags`` that the unknown flag starts with:
    --batch for --batch-size. Rules separate the sections of the frame; an ASCII frame has a title as its first section.
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
    missing = re.match(r"Missing from .*?: (\S+) (\S)(.*?)\.? \(required\)", message)
    if missing:
        flag, first, rest = missing.groups()
        return f"{flag if flag.startswith('--') else 'an argument'} is missing: {first.lower()}{rest}"
    close = next((s[1].split()[0].rstrip(",") for s in sections if s and s[0].startswith("Perhaps you meant")), None)
    wrong = re.match(r"Unrecognized options: (--[^\s,=]+)", message)
    if wrong and not close:
        close = max((flag for flag in flags if wrong[1].startswith(flag)), key=len, default=None)
    return message.rstrip(".") + (f"; did you mean {close}?" if close else "")


@contextlib.contextmanager
def or_skipped() -> Iterator[None]:
    """Within the block, the error of unreadable images also names the flag that leaves them out.

    For the commands that have it; Python's functions and other commands that read images do not.
    """
    try:
        yield
    except BadImages as error:
        raise UserError(f"{error}, or leave such out with --on-bad-image skip") from error
