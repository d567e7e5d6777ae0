"""Why something failed, on one line: what a library's exception says, fit to stand inside our own message."""

__all__ = ["reason"]


def reason(error: BaseException) -> str:
    """The first line of the exception's message, or the name of its type where it says nothing.

    >>> reason(EOFError()), reason(OSError("broken\\nat byte 7"))
    ('EOFError', 'broken')
    """
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
