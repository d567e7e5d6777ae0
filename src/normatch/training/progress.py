"""Progress on standard error: a live bar on a terminal (or if FORCE_COLOR says so), else plain lines."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import ProgressColumn

    from normatch.training.diagnostics import Alarm
    from normatch.training.metrics import Record

__all__ = ["Lines", "Progress", "clock", "counting", "decoding", "downloading", "quiet", "shown"]

SECONDS = 5.0
"""Least time between two lines of progress where standard error is not a terminal."""

SHOWN = (
    ("loss", "loss", "{:.3f}"),
    ("pseudo/trusted", "trusted", "{:.0%}"),
    ("test/accuracy", "test", "{:.2%}"),
    ("validation/accuracy", "validation", "{:.2%}"),
)
"""The metrics to show: name, caption, format."""


class Progress(Protocol):
    """Receives the metrics and warnings of a run as they come, and notes for the user."""

    def __call__(self, step: int, total: int, record: "Record") -> None: ...

    def warn(self, alarm: "Alarm") -> None: ...

    def note(self, text: str) -> None:
        """Show a single event."""

    def busy(self, what: str) -> AbstractContextManager[None]:
        """A context for work during which no step is done, such as compiling."""


class _Quiet:
    def __call__(self, step: int, total: int, record: "Record") -> None:
        return

    def warn(self, alarm: "Alarm") -> None:
        return

    def note(self, text: str) -> None:
        return

    def busy(self, what: str) -> AbstractContextManager[None]:
        return nullcontext()


quiet: Progress = _Quiet()
"""Shows nothing."""


@contextmanager
def shown(title: str) -> Iterator[Progress]:
    """The progress of a run: a live bar on a terminal, else a line every few seconds."""
    from rich.progress import MofNCompleteColumn, TextColumn, TimeRemainingColumn

    if not _is_terminal():
        yield Lines(title)
        return
    speed, metrics = (TextColumn(f"{{task.fields[{name}]}}") for name in ("speed", "metrics"))
    with _bar(MofNCompleteColumn(), speed, TimeRemainingColumn(), metrics) as bar:
        yield _Bar(title, bar)


class _Newest:
    """The newest value of each metric of a run."""

    def __init__(self) -> None:
        self._values: dict[str, float] = {}

    def update(self, record: "Record") -> None:
        self._values |= {name: value for name, value in record.items() if isinstance(value, float)}

    @property
    def speed(self) -> float | None:
        """Also after the record of an evaluation, which has none: that before."""
        return self._values.get("steps_per_second")

    def __str__(self) -> str:
        return "  ".join(
            f"{caption} {form.format(self._values[name])}" for name, caption, form in SHOWN if name in self._values
        )


class _Bar:
    """A live bar, with warnings and notes printed above it."""

    def __init__(self, title: str, bar: "RichProgress") -> None:
        self._title, self._bar, self._newest = title, bar, _Newest()
        self._task = bar.add_task(title, total=None, speed="", metrics="")

    def __call__(self, step: int, total: int, record: "Record") -> None:
        self._newest.update(record)
        fields: dict[str, Any] = {"metrics": str(self._newest)}
        if self._newest.speed:
            fields["speed"] = f"{self._newest.speed:.1f} steps/s"
        self._bar.update(self._task, total=total, completed=step, **fields)

    def warn(self, alarm: "Alarm") -> None:
        self._bar.console.print(f"warning: {alarm}", style="yellow", markup=False, highlight=False)

    def note(self, text: str) -> None:
        self._bar.console.print(f"{self._title}  {text}", markup=False, highlight=False)

    @contextmanager
    def busy(self, what: str) -> Iterator[None]:
        stopwatch = _Stopwatch(what)
        self._bar.update(self._task, metrics=stopwatch)
        yield
        self._bar.update(self._task, metrics="")
        self.note(str(stopwatch))


class Lines:
    """One line at most every few seconds, and one at the end."""

    SECONDS = SECONDS

    def __init__(self, title: str) -> None:
        self._title, self._newest, self._last = title, _Newest(), time.monotonic()

    def __call__(self, step: int, total: int, record: "Record") -> None:
        self._newest.update(record)
        now, speed = time.monotonic(), self._newest.speed
        if now - self._last < self.SECONDS and step < total:
            return
        self._last = now
        pace = f"  {speed:.1f} steps/s  {clock((total - step) / speed)} left" if speed else ""
        self.note(f"{step}/{total}{pace}  {self._newest}")

    def warn(self, alarm: "Alarm") -> None:
        self.note(f"warning: {alarm}")

    def note(self, text: str) -> None:
        print(f"{self._title}  {text}", file=sys.stderr, flush=True)

    @contextmanager
    def busy(self, what: str) -> Iterator[None]:
        stopwatch = _Stopwatch(what)
        self.note(f"{what} …")
        yield
        self.note(str(stopwatch))


class _Stopwatch:
    """The name of some work and the time since its start, as text."""

    def __init__(self, what: str) -> None:
        self._what, self._start = what, time.monotonic()

    def __str__(self) -> str:
        return f"{self._what} … {time.monotonic() - self._start:.0f} s"


def clock(seconds: float) -> str:
    """Seconds as hours, minutes and seconds.

    >>> clock(75), clock(3 * 3600)
    ('0:01:15', '3:00:00')
    """
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}"


Report = Callable[[str, int, int | None], None]
"""Called with a title, the amount done, and the total (None if unknown)."""


@contextmanager
def counting(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """A function to call with the number of samples done out of ``total``: a live bar on a terminal, else no output."""
    with _reporting(lambda *_: None, transient=True) as report:
        report(title, 0, total)
        yield lambda done: report(title, done, total)


@contextmanager
def decoding() -> Iterator[Callable[[int, int], None]]:
    """A function to call with (images decoded, all images): a live bar on a terminal, else a line every few seconds."""
    last = time.monotonic()

    def as_lines(title: str, done: int, total: int | None) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= SECONDS:
            last = now
            print(f"{title}  {done}/{total}", file=sys.stderr, flush=True)

    with _reporting(as_lines) as report:
        yield lambda done, total: report("decoding images", done, total)


@contextmanager
def downloading() -> Iterator[Report]:
    """A function to call as bytes of a file arrive: a live bar on a terminal, else one line per finished file."""
    from rich.progress import DownloadColumn, TimeRemainingColumn, TransferSpeedColumn

    def as_lines(name: str, done: int, total: int | None) -> None:
        if done == total:
            print(f"{name}  {done} bytes", file=sys.stderr, flush=True)

    with _reporting(as_lines, DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()) as report:
        yield report


@contextmanager
def _reporting(as_lines: Report, *columns: "ProgressColumn", transient: bool = False) -> Iterator[Report]:
    """On a terminal a function that draws one bar per title, by default with counts; otherwise ``as_lines``."""
    from rich.progress import MofNCompleteColumn, TimeRemainingColumn

    if not _is_terminal():
        yield as_lines
        return
    with _bar(*(columns or (MofNCompleteColumn(), TimeRemainingColumn())), transient=transient) as bar:
        tasks: dict[str, Any] = {}

        def report(title: str, done: int, total: int | None) -> None:
            if title not in tasks:
                tasks[title] = bar.add_task(title, total=total)
            bar.update(tasks[title], completed=done, total=total)

        yield report


def _is_terminal() -> bool:
    from rich.console import Console

    return Console(stderr=True).is_terminal


def _bar(*columns: "ProgressColumn", transient: bool = False) -> "RichProgress":
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as RichProgress

    title = TextColumn("{task.description}")
    return RichProgress(title, BarColumn(), *columns, console=Console(stderr=True), transient=transient)
