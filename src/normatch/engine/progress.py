"""What a person sees while a run trains: a live bar on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Protocol

from normatch.engine.diagnosis import Alarm
from normatch.engine.recorder import Record

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import ProgressColumn, TaskID

__all__ = ["Lines", "Progress", "clock", "counting", "decoding", "downloading", "quiet", "shown"]

Told = Callable[[str, int, int | None], None]
"""Takes the title of something, how much of it is done, and of how much, where that is known."""

SHOWN = (
    ("loss", "loss", "{:.3f}"),
    ("pseudo/trusted", "trusted", "{:.0%}"),
    ("test/accuracy", "test", "{:.2%}"),
    ("validation/accuracy", "validation", "{:.2%}"),
)
"""Metrics worth a place in the line: name, caption, format."""


class Progress(Protocol):
    """Told of a run's metrics and alarms as they come, and of what else a person should know."""

    def __call__(self, step: int, total: int, record: Record) -> None: ...

    def warn(self, alarm: Alarm) -> None: ...

    def note(self, text: str) -> None:
        """Something that happened once."""

    def busy(self, what: str) -> AbstractContextManager[None]:
        """Something that no step is done during, for as long as the block takes."""


class _Quiet:
    def __call__(self, step: int, total: int, record: Record) -> None:
        return

    def warn(self, alarm: Alarm) -> None:
        return

    def note(self, text: str) -> None:
        return

    def busy(self, what: str) -> AbstractContextManager[None]:
        return nullcontext()


quiet: Progress = _Quiet()
"""Shows nothing."""


@contextmanager
def shown(title: str) -> Iterator[Progress]:
    """A live bar if standard error is a terminal, else a line every few seconds."""
    if sys.stderr.isatty():
        with _Bar(title) as progress:
            yield progress
    else:
        yield Lines(title)


@contextmanager
def counting(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Told how many of ``total`` things are done: a live bar if standard error is a terminal, else nothing."""
    from rich.progress import MofNCompleteColumn, TimeRemainingColumn

    columns = (MofNCompleteColumn(), TimeRemainingColumn())
    with _told(*columns, live=sys.stderr.isatty(), elsewhere=lambda *_: None, transient=True) as told:
        told(title, 0, total)
        yield lambda done: told(title, done, total)


@contextmanager
def downloading() -> Iterator[Told]:
    """Told of a file's bytes as they come: a live bar on a terminal, else a line for each finished file."""
    from rich.progress import DownloadColumn, TimeRemainingColumn, TransferSpeedColumn

    def elsewhere(name: str, done: int, total: int | None) -> None:
        if done == total:
            print(f"{name}  {done} bytes", file=sys.stderr, flush=True)

    columns = (DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with _told(*columns, live=_takes_escapes(), elsewhere=elsewhere) as told:
        yield told


@contextmanager
def decoding() -> Iterator[Callable[[int, int], None]]:
    """Told how many of how many images are decoded: a live bar on a terminal, else a line every few seconds."""
    from rich.progress import MofNCompleteColumn, TimeRemainingColumn

    last = time.monotonic()

    def elsewhere(title: str, done: int, total: int | None) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= Lines.SECONDS:
            last = now
            print(f"{title}  {done}/{total}", file=sys.stderr, flush=True)

    columns = (MofNCompleteColumn(), TimeRemainingColumn())
    with _told(*columns, live=_takes_escapes(), elsewhere=elsewhere) as told:
        yield lambda done, total: told("decoding images", done, total)


@contextmanager
def _told(*columns: "ProgressColumn", live: bool, elsewhere: Told, transient: bool = False) -> Iterator[Told]:
    """Where ``live``, a bar for each title from when it is first told of; otherwise ``elsewhere`` is told."""
    if not live:
        yield elsewhere
        return
    with _bar(*columns, transient=transient) as bar:
        tasks: dict[str, TaskID] = {}

        def told(title: str, done: int, total: int | None) -> None:
            if title not in tasks:
                tasks[title] = bar.add_task(title, total=total)
            bar.update(tasks[title], completed=done, total=total)

        yield told


def _bar(*columns: "ProgressColumn", transient: bool = False) -> "RichProgress":
    """A title, a bar, and what else there is to say of it, on standard error."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as RichProgress

    title = TextColumn("{task.description}")
    return RichProgress(title, BarColumn(), *columns, console=Console(stderr=True), transient=transient)


def _takes_escapes() -> bool:
    """Whether standard error is a terminal, or the environment (FORCE_COLOR, TTY_COMPATIBLE) says that it is one."""
    from rich.console import Console

    return Console(stderr=True).is_terminal


class _Summary:
    """The newest value of each metric worth showing."""

    def __init__(self) -> None:
        self._values: dict[str, float] = {}

    def update(self, record: Record) -> str:
        self._values |= {name: value for name, value in record.items() if isinstance(value, float)}
        return "  ".join(
            f"{caption} {form.format(self._values[name])}" for name, caption, form in SHOWN if name in self._values
        )


class _Bar:
    """A live bar; what else is to be said goes above it."""

    def __init__(self, title: str) -> None:
        from rich.progress import MofNCompleteColumn, TextColumn, TimeRemainingColumn

        self._title, self._summary = title, _Summary()
        speed, metrics = (TextColumn(f"{{task.fields[{name}]}}") for name in ("speed", "metrics"))
        self._bar = _bar(MofNCompleteColumn(), speed, TimeRemainingColumn(), metrics)
        self._task = self._bar.add_task(title, total=None, speed="", metrics="")

    def __enter__(self) -> "_Bar":
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def __call__(self, step: int, total: int, record: Record) -> None:
        fields = {"metrics": self._summary.update(record)}
        speed = record.get("steps_per_second")
        if isinstance(speed, float):
            fields["speed"] = f"{speed:.1f} steps/s"
        self._bar.update(self._task, total=total, completed=step, **fields)  # type: ignore[arg-type]

    def warn(self, alarm: Alarm) -> None:
        from rich.text import Text

        self._bar.console.print(Text(f"warning: {alarm}", style="yellow"))

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

    SECONDS = 5.0

    def __init__(self, title: str) -> None:
        self._title = title
        self._summary = _Summary()
        self._last = time.monotonic()
        self._speed: float | None = None

    def __call__(self, step: int, total: int, record: Record) -> None:
        text = self._summary.update(record)
        # An evaluation's record has no speed of its own.
        speed = record.get("steps_per_second")
        self._speed = speed if isinstance(speed, float) else self._speed
        now = time.monotonic()
        if now - self._last < self.SECONDS and step < total:
            return
        self._last = now
        pace = f"  {self._speed:.1f} steps/s  {clock((total - step) / self._speed)} left" if self._speed else ""
        self.note(f"{step}/{total}{pace}  {text}")

    def warn(self, alarm: Alarm) -> None:
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
    """What is going on and for how long, whenever it is looked at."""

    def __init__(self, what: str) -> None:
        self._what, self._start = what, time.monotonic()

    def __str__(self) -> str:
        return f"{self._what} … {time.monotonic() - self._start:.0f} s"


def clock(seconds: float) -> str:
    """
    >>> clock(75), clock(3 * 3600)
    ('0:01:15', '3:00:00')
    """
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}"
