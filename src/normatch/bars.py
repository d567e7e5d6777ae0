"""Live progress bars on standard error: predictions, downloads, decoded images."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import ProgressColumn, TaskID

__all__ = ["SECONDS", "bar", "counting", "decoding", "downloading"]

Report = Callable[[str, int, int | None], None]
"""Called with a title, the amount done, and the total (None if unknown)."""

SECONDS = 5.0
"""Least time between two lines of progress where standard error is not a terminal."""


@contextmanager
def counting(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """A function to call with the number of items done out of ``total``: a live bar on a terminal, else no output."""
    from rich.progress import MofNCompleteColumn, TimeRemainingColumn

    columns = (MofNCompleteColumn(), TimeRemainingColumn())
    with _reporting(*columns, as_lines=lambda *_: None, transient=True) as report:
        report(title, 0, total)
        yield lambda done: report(title, done, total)


@contextmanager
def downloading() -> Iterator[Report]:
    """A function to call as bytes of a file arrive: a live bar on a terminal, else one line per finished file."""
    from rich.progress import DownloadColumn, TimeRemainingColumn, TransferSpeedColumn

    def as_lines(name: str, done: int, total: int | None) -> None:
        if done == total:
            print(f"{name}  {done} bytes", file=sys.stderr, flush=True)

    columns = (DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with _reporting(*columns, as_lines=as_lines) as report:
        yield report


@contextmanager
def decoding() -> Iterator[Callable[[int, int], None]]:
    """A function to call with (images decoded, all images): a live bar on a terminal, else a line every few seconds."""
    from rich.progress import MofNCompleteColumn, TimeRemainingColumn

    last = time.monotonic()

    def as_lines(title: str, done: int, total: int | None) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= SECONDS:
            last = now
            print(f"{title}  {done}/{total}", file=sys.stderr, flush=True)

    columns = (MofNCompleteColumn(), TimeRemainingColumn())
    with _reporting(*columns, as_lines=as_lines) as report:
        yield lambda done, total: report("decoding images", done, total)


def bar(*columns: "ProgressColumn", transient: bool = False) -> "RichProgress":
    """A rich progress display on standard error: a title, a bar, and ``columns``."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as RichProgress

    title = TextColumn("{task.description}")
    return RichProgress(title, BarColumn(), *columns, console=Console(stderr=True), transient=transient)


@contextmanager
def _reporting(*columns: "ProgressColumn", as_lines: Report, transient: bool = False) -> Iterator[Report]:
    """On a terminal, or if FORCE_COLOR or TTY_COMPATIBLE in the environment says so, a function that draws one bar per
    title; otherwise ``as_lines``."""
    from rich.console import Console

    if not Console(stderr=True).is_terminal:
        yield as_lines
        return
    with bar(*columns, transient=transient) as bars:
        tasks: dict[str, TaskID] = {}

        def report(title: str, done: int, total: int | None) -> None:
            if title not in tasks:
                tasks[title] = bars.add_task(title, total=total)
            bars.update(tasks[title], completed=done, total=total)

        yield report
