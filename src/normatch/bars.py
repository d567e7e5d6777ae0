"""Live bars on standard error for work that is counted: predictions, downloads, images decoded."""

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
"""Called with the title of something, how much of it is done, and of how much, where that is known."""

SECONDS = 5.0
"""Between two lines, where lines stand for a bar."""


@contextmanager
def counting(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """A function to call with how many of ``total`` are done: a live bar on a terminal, else nothing."""
    from rich.progress import MofNCompleteColumn, TimeRemainingColumn

    columns = (MofNCompleteColumn(), TimeRemainingColumn())
    with _reporting(*columns, live=sys.stderr.isatty(), elsewhere=lambda *_: None, transient=True) as report:
        report(title, 0, total)
        yield lambda done: report(title, done, total)


@contextmanager
def downloading() -> Iterator[Report]:
    """A function to call as a file's bytes arrive: a live bar on a terminal, else a line for each finished file."""
    from rich.progress import DownloadColumn, TimeRemainingColumn, TransferSpeedColumn

    def elsewhere(name: str, done: int, total: int | None) -> None:
        if done == total:
            print(f"{name}  {done} bytes", file=sys.stderr, flush=True)

    columns = (DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with _reporting(*columns, live=_takes_escapes(), elsewhere=elsewhere) as report:
        yield report


@contextmanager
def decoding() -> Iterator[Callable[[int, int], None]]:
    """A function to call with how many of how many images are decoded: a live bar, else a line every few seconds."""
    from rich.progress import MofNCompleteColumn, TimeRemainingColumn

    last = time.monotonic()

    def elsewhere(title: str, done: int, total: int | None) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= SECONDS:
            last = now
            print(f"{title}  {done}/{total}", file=sys.stderr, flush=True)

    columns = (MofNCompleteColumn(), TimeRemainingColumn())
    with _reporting(*columns, live=_takes_escapes(), elsewhere=elsewhere) as report:
        yield lambda done, total: report("decoding images", done, total)


def bar(*columns: "ProgressColumn", transient: bool = False) -> "RichProgress":
    """A title, a bar, and more columns, on standard error."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as RichProgress

    title = TextColumn("{task.description}")
    return RichProgress(title, BarColumn(), *columns, console=Console(stderr=True), transient=transient)


@contextmanager
def _reporting(*columns: "ProgressColumn", live: bool, elsewhere: Report, transient: bool = False) -> Iterator[Report]:
    """Where ``live``, a function that draws a bar for each title, from its first call on; otherwise ``elsewhere``."""
    if not live:
        yield elsewhere
        return
    with bar(*columns, transient=transient) as bars:
        tasks: dict[str, TaskID] = {}

        def report(title: str, done: int, total: int | None) -> None:
            if title not in tasks:
                tasks[title] = bars.add_task(title, total=total)
            bars.update(tasks[title], completed=done, total=total)

        yield report


def _takes_escapes() -> bool:
    """Whether standard error is a terminal, or the environment (FORCE_COLOR, TTY_COMPATIBLE) says that it is one."""
    from rich.console import Console

    return Console(stderr=True).is_terminal
