"""The error for wrong input, and helpers for its one-line messages: the thing, its value and the remedy."""

import shlex
from pathlib import Path

__all__ = ["RESUME", "UserError", "reason", "repeat_command", "resume_command"]


RESUME = 75
"""Exit code of a run that was stopped and can be resumed (EX_TEMPFAIL of sysexits.h)."""


class UserError(ValueError):
    """Wrong input. The command line prints its message on one line and exits with code 2."""


def reason(error: BaseException) -> str:
    """Why something failed, for use inside a one-line message: the exception's first line, or else its type's name.

    >>> reason(EOFError()), reason(OSError("broken\\nat byte 7"))
    ('EOFError', 'broken')
    """
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    lines = text.strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


def resume_command(folder: Path, *flags: str) -> str:
    """The shell command that resumes the run in ``folder``.

    >>> resume_command(Path("runs/my cats"))
    "normatch train --out 'runs/my cats' --resume"
    """
    return shlex.join(["normatch", "train", "--out", str(folder), "--resume", *flags])


def repeat_command(folder: Path, *flags: str) -> str:
    """The shell command that trains the run in ``folder`` again, with ``flags`` changed.

    >>> repeat_command(Path("runs/cats"), "--seed", "1")
    'normatch train --config runs/cats/config.json --seed 1'
    """
    return shlex.join(["normatch", "train", "--config", str(folder / "config.json"), *flags])
