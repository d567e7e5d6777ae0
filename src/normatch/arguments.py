"""Typed command-line arguments: parsed by tyro, with errors of one line."""

import contextlib
import dataclasses
import io
import re
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro

from normatch.config import Config
from normatch.data import sources
from normatch.engine.run import Run
from normatch.errors import UserError
from normatch.recipes import own, recipes

__all__ = ["TrainArguments", "parse", "parse_train"]

T = TypeVar("T")


def parse(kind: Any, verb: str, argv: list[str]) -> Any:
    """Call or build ``kind`` from ``argv``; wrong arguments are a UserError."""
    shown = io.StringIO()
    try:
        with contextlib.redirect_stderr(shown):
            return tyro.cli(kind, prog=f"normatch {verb}", args=argv)
    except SystemExit as stop:
        if stop.code:
            raise UserError(f"{verb}: {_one_line(shown.getvalue())}; see normatch {verb} --help") from None
        raise


@dataclasses.dataclass(frozen=True)
class TrainArguments:
    """What `normatch train` was asked."""

    config: Config
    out: Path | None
    resume: bool


def parse_train(argv: list[str]) -> TrainArguments:
    """Any field of the config is a flag. The recipe (or, with --resume, the run itself) gives the defaults."""
    first = argv[0] if argv and not argv[0].startswith("-") else None
    base = _base(first, argv)
    assumed = first or base.name
    given = _parse_from(base, assumed, argv)
    if given.recipe != assumed:
        # The recipe stands behind a flag, where only a parser that knows the flags can find it.
        given = _parse_from(recipes.get(given.recipe).build(), given.recipe, argv)
    config = Config(**{f.name: getattr(given, f.name) for f in dataclasses.fields(Config)})
    return TrainArguments(config, given.out, given.resume)


def _base(recipe: str | None, argv: list[str]) -> Config:
    """Where the defaults come from."""
    out, data = _value_of(argv, "--out"), _value_of(argv, "--data")
    if recipe is None and "--resume" in argv and out is not None:
        return Run.open(Path(out)).config
    if recipe is None and data is not None and data not in sources:
        return own(data)
    return recipes.get(recipe or "digits-40").build()


def _parse_from(base: Config, recipe: str, argv: list[str]) -> Any:
    method = _value_of(argv, "--method")
    if method is not None:
        base = base.replace(method=method)
    return parse(_train_type(base, recipe), "train", argv)


def _train_type(base: Config, recipe: str) -> Any:
    """A dataclass of the config's fields and the command's own, with the method's settings by their real type."""
    defaults = {f.name: getattr(base, f.name) for f in dataclasses.fields(base)}
    changed = [
        (f.name, type(base.settings) if f.name == "settings" else f.type, dataclasses.field(default=defaults[f.name]))
        for f in dataclasses.fields(base)
    ]
    own = [
        ("recipe", Annotated[tyro.conf.Positional[str], _help("The named run to start from.")], recipe),
        ("out", Annotated[Path | None, _help("Folder of the run; runs/NAME by default.")], None),
        ("resume", Annotated[bool, _help("Continue the run in --out from its newest checkpoint.")], False),
    ]
    fields = changed + [(name, kind, dataclasses.field(default=default)) for name, kind, default in own]
    # The config that is built from these checks itself, where its errors are the user's.
    arguments = dataclasses.make_dataclass(
        "Train", fields, bases=(Config,), frozen=True, namespace={"__post_init__": lambda self: None}
    )
    about = recipes.get(recipe).summary if recipe in recipes else "a run of your own."
    arguments.__doc__ = f"Train {base.name}: {about}"
    return arguments


def _help(text: str) -> Any:
    return tyro.conf.arg(help=text)


def _value_of(argv: list[str], flag: str) -> str | None:
    for i, word in enumerate(argv):
        if word == flag and i + 1 < len(argv):
            return argv[i + 1]
        if word.startswith(f"{flag}="):
            return word.split("=", 1)[1]
    return None


def _one_line(box: str) -> str:
    """The message of the parser's framed text, and the flag it suggests.

    The frame's sections are parted by rules; drawn in ASCII, it begins with a section that is only a title.
    """
    sections: list[list[str]] = [[]]
    for line in (re.sub(r"^[│|]\s?|\s*[│|]$", "", line).strip() for line in box.splitlines()):
        if line and set(line) <= {"─", "-"}:
            sections.append([])
        elif line and not line.startswith(("╭", "╰")):
            sections[-1].append(line)
    message = " ".join(sections[0] if "╭" in box else sections[min(1, len(sections) - 1)])
    close = next((s[1].split()[0].rstrip(",") for s in sections if s and s[0].startswith("Perhaps you meant")), None)
    return message.rstrip(".") + (f"; did you mean {close}?" if close else "")
