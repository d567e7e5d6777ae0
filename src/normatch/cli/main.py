"""From the command line to the verb that it names, and from errors to exit codes."""

import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from normatch.errors import UserError
from normatch.files import FULL
from normatch.text import on_one_line

__all__ = ["main"]

VERBS = {
    "train": "Train a recipe, or your own data with --data, into a new folder.",
    "eval": "Score a finished run on its held-out items.",
    "predict": "Label images with a trained model.",
    "suggest": "Suggest what to label next, by what a finished run has learned.",
    "export": "Turn a trained model into one ONNX or torch file.",
    "list": "List the methods, datasets, backbones or recipes.",
    "data": "Fetch a data set, look at one, see or clear the cache: normatch data get|inspect|cache.",
    "report": "Write the page of a finished run: accuracy, curves, confusion, calibration, disputed images.",
    "compare": "Put finished runs side by side: settings that differ, accuracies, who won on the same items.",
    "reproduce": "Train what a table or figure of the paper needs, and fill it: table1, figure3, all and so on.",
    "bench": "Time the training step of a recipe, or of your own data with --data, on this machine.",
    "demo": "Four methods on the same 40 labelled digits, in about a minute.",
}
"""The verbs, named like their modules, and what they do: here, so that ``normatch --help`` need not load torch."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit code; a UserError becomes one line on standard error and exit code 2."""
    _open_closed_streams()
    verb, *rest = [_expanded(word) for word in (sys.argv[1:] if argv is None else argv)] or ["--help"]
    if isinstance(sys.stdout, io.TextIOWrapper) and _may_fail(sys.stdout):
        # As on standard error: what is not valid text, or not in its encoding, is printed with escapes.
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
            import_module(f"normatch.cli.{verb}").main(rest)
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
    except KeyboardInterrupt as stop:
        said = str(stop) or ("run it again to continue" if verb == "reproduce" else "")
        print(f"normatch: stopped{said and '; '}{said}", file=sys.stderr)
        return 1
    return 0


def _may_fail(stream: io.TextIOWrapper) -> bool:
    """Whether printing can raise UnicodeEncodeError. In the C locale only the bytes of file names are let through."""
    return stream.errors == "strict" or (stream.errors == "surrogateescape" and stream.encoding.lower() != "utf-8")


def _open_closed_streams() -> None:
    """Open the null device for each standard stream that the caller has closed (``2>&-``), where Python has None.

    In this order they get the numbers of the streams, which the next files would get otherwise: what a library prints
    must not end up in a checkpoint.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            null = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115
            os.set_inheritable(null.fileno(), True)
            setattr(sys, name, null)


def _expanded(word: str) -> str:
    """The argument with a leading ``~`` expanded, also in ``--out=~/runs``, where the shell leaves it as it is."""
    flag, equals, value = word.partition("=")
    if equals and flag.startswith("--"):
        return f"{flag}={os.path.expanduser(value)}"
    return os.path.expanduser(word)


def _help() -> str:
    verbs = "\n".join(f"  {name:<11}{about}" for name, about in VERBS.items())
    return (
        "usage: normatch VERB [options]\n\n"
        "Train an image classifier from a handful of labels and many unlabelled images.\n\n"
        f"{verbs}\n\n"
        "normatch VERB --help explains a verb. Exit codes: 0 done, 2 the input is wrong, 1 anything else."
    )
