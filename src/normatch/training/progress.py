"""Progress on standard error: a live bar on a terminal (or if FORCE_COLOR says so), else plain lines."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from rich import progress as rich
from rich.console import Console

if TYPE_CHECKING:
    from normatch.training.diagnostics import Alarm
    from normatch.training.metrics import Record

__all__ = ["Lines", "Progress", "counting", "decoding", "downloading", "quiet", "shown"]

SECONDS = 5.0
"""Least time between two lines of progress where standard error is not a terminal."""

SHOWN = (
    ("loss", "loss", "{:.3f}"),
    ("pseudo/trusted", "trusted", "{:.0%}"),
    ("test/accuracy", "test", "{:.2%}"),
    ("validation/accuracy", "validation", "{:.2%}"),
)
"""The metrics to show: name, caption, format."""


class Progress:
    """Receives the metrics and warnings of a run as they come, and notes for the user. This one shows nothing."""

    def __call__(self, step: int, total: int, record: "Record") -> None:
        return

    def note(self, text: str) -> None:
        """Show a single event."""

    def count(self, what: str, done: int, total: int) -> None:
        """Show how much is done of work that comes before the first step."""

    def warn(self, alarm: "Alarm") -> None:
        self.note(f"warning: {alarm}")

    @contextmanager
    def busy(self, what: str) -> Iterator[None]:
        """A context for work during which no step is done, such as compiling."""
        start = time.monotonic()
        self.note(f"{what} …")
        yield
        self.note(f"{what} … {time.monotonic() - start:.0f} s")


quiet = Progress()


class Lines(Progress):
    """One line at most every few seconds, and one at the end."""

    SECONDS = SECONDS

    def __init__(self, title: str) -> None:
        self.title, self._last = title, time.monotonic()
        self._begun: float | None = None
        self._newest: dict[str, float] = {}

    def __call__(self, step: int, total: int, record: "Record") -> None:
        # Not every record has a speed.
        self._newest |= {name: value for name, value in record.items() if isinstance(value, float)}
        known = [(caption, form.format(self._newest[name])) for name, caption, form in SHOWN if name in self._newest]
        self.show(step, total, self._newest.get("steps_per_second"), "  ".join(map(" ".join, known)))

    def show(self, step: int, total: int, speed: float | None, metrics: str) -> None:
        now = time.monotonic()
        if now - self._last >= self.SECONDS or step >= total:
            self._last = now
            left = timedelta(seconds=round((total - step) / speed)) if speed else None
            self.note(f"{step}/{total}{f'  {speed:.1f} steps/s  {left} left' if speed else ''}  {metrics}")

    def count(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if self._begun is None:
            # The first part is not timed: it includes what is done but once.
            self._begun, self._first = now, done
        elif now - self._last >= self.SECONDS or done == total:
            self._last = now
            left = timedelta(seconds=round((now - self._begun) / max(1, done - self._first) * (total - done)))
            self.note(f"{what} {done}/{total}{f'  {left} left' if done < total else ''}")

    def note(self, text: str) -> None:
        print(f"{self.title}  {text}", file=sys.stderr, flush=True)


class _Bar(Lines):
    """A live bar, with warnings and notes printed above it."""

    def __init__(self, title: str, bar: rich.Progress) -> None:
        super().__init__(title)
        self._bar, self._task = bar, bar.add_task(title, total=None, speed="", metrics="")
        self._counted: rich.TaskID | None = None

    def count(self, what: str, done: int, total: int) -> None:
        if self._counted is None:
            self._counted = self._bar.add_task(what, total=total, speed="", metrics="")
        self._bar.update(self._counted, completed=done, visible=done < total)

    def show(self, step: int, total: int, speed: float | None, metrics: str) -> None:
        pace = f"{speed:.1f} steps/s" if speed else ""
        self._bar.update(self._task, total=total, completed=step, speed=pace, metrics=metrics)

    def note(self, text: str) -> None:
        style = "yellow" if text.startswith("warning: ") else None
        self._bar.console.print(f"{self.title}  {text}", style=style, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def shown(title: str) -> Iterator[Progress]:
    """The progress of a run: a live bar on a terminal, else a line every few seconds."""
    speed, metrics = (rich.TextColumn(f"{{task.fields[{name}]}}") for name in ("speed", "metrics"))
    with _bar(rich.MofNCompleteColumn(), speed, rich.TimeRemainingColumn(), metrics) as bar:
        yield Lines(title) if bar is None else _Bar(title, bar)


Report = Callable[[str, int, int | None], None]
"""Called with a title, the amount done, and the total (None if unknown)."""


@contextmanager
def counting(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """A function to call with the number of samples done out of ``total``."""
    with _reporting(rich.MofNCompleteColumn(), transient=True) as report:
        report(title, 0, total)
        yield lambda done: report(title, done, total)


@contextmanager
def decoding() -> Iterator[Callable[[int, int], None]]:
    """A function to call with (images decoded, all images)."""
    with _reporting(rich.MofNCompleteColumn()) as report:
        yield lambda done, total: report("decoding images", done, total)


def downloading() -> AbstractContextManager[Report]:
    """A function to call as bytes of a file arrive."""
    return _reporting(rich.DownloadColumn(), rich.TransferSpeedColumn())


@contextmanager
def _reporting(*columns: rich.ProgressColumn, transient: bool = False) -> Iterator[Report]:
    """A function that shows what is done: a live bar per title on a terminal, else a line every few seconds."""
    with _bar(*columns, rich.TimeRemainingColumn(), transient=transient) as bar:
        tasks: dict[str, rich.TaskID] = {}
        last = time.monotonic()

        def report(title: str, done: int, total: int | None) -> None:
            nonlocal last
            if bar is not None:
                if title not in tasks:
                    tasks[title] = bar.add_task(title, total=total)
                bar.update(tasks[title], completed=done, total=total)
            elif time.monotonic() - last >= SECONDS:
                last = time.monotonic()
                print(f"{title}  {done}/{total or '?'}", file=sys.stderr, flush=True)

        yield report


@contextmanager
def _bar(*columns: rich.ProgressColumn, transient: bool = False) -> Iterator[rich.Progress | None]:
    """A live bar with these columns; None where standard error is not a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    title = rich.TextColumn("{task.description}")
    with rich.Progress(title, rich.BarColumn(), *columns, console=console, transient=transient) as bar:
        yield bar
