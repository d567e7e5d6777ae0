"""The one error that is the user's to mend: a line naming the thing, its value and the remedy."""

import shlex
from pathlib import Path

__all__ = ["UserError", "going_on", "reason"]


class UserError(ValueError):
    """Wrong input. The command line prints its message on one line and exits with code 2."""


def reason(error: BaseException) -> str:
    """Why something failed, fit to stand inside our own line: the first of the exception's, or its type's name.

    >>> reason(EOFError()), reason(OSError("broken\\nat byte 7"))
    ('EOFError', 'broken')
    """
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


def going_on(folder: Path) -> str:
    """The command that continues the run in a folder, fit to be copied.

    >>> going_on(Path("runs/my cats"))
    "normatch train --out 'runs/my cats' --resume"
    """
    return f"normatch train --out {shlex.quote(str(folder))} --resume"
