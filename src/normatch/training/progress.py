"""The progress of a run on standard error: a live bar on a terminal, else plain lines."""

import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

from normatch import bars
from normatch.training.diagnostics import Alarm
from normatch.training.metrics import Record

__all__ = ["Lines", "Progress", "clock", "quiet", "shown"]

SHOWN = (
    ("loss", "loss", "{:.3f}"),
    ("pseudo/trusted", "trusted", "{:.0%}"),
    ("test/accuracy", "test", "{:.2%}"),
    ("validation/accuracy", "validation", "{:.2%}"),
)
"""The metrics to show: name, caption, format."""


class Progress(Protocol):
    """Receives the metrics and alarms of a run as they come, and notes for the user."""

    def __call__(self, step: int, total: int, record: Record) -> None: ...

    def warn(self, alarm: Alarm) -> None: ...

    def note(self, text: str) -> None:
        """Show a single event."""

    def busy(self, what: str) -> AbstractContextManager[None]:
        """A context for work during which no step is done, such as compiling."""


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


class _Summary:
    """The newest value of each metric worth showing."""

    def __init__(self) -> None:
        self._values: dict[str, float] = {}
        self._step = 0

    def update(self, step: int, record: Record) -> str:
        if step < self._step:  # those of another network
            self._values.clear()
        self._step = step
        self._values |= {name: value for name, value in record.items() if isinstance(value, float)}
        return "  ".join(
            f"{caption} {form.format(self._values[name])}" for name, caption, form in SHOWN if name in self._values
        )


class _Bar:
    """A live bar, with warnings and notes printed above it."""

    def __init__(self, title: str) -> None:
        from rich.progress import MofNCompleteColumn, TextColumn, TimeRemainingColumn

        self._title, self._summary = title, _Summary()
        speed, metrics = (TextColumn(f"{{task.fields[{name}]}}") for name in ("speed", "metrics"))
        self._bar = bars.bar(MofNCompleteColumn(), speed, TimeRemainingColumn(), metrics)
        self._task = self._bar.add_task(title, total=None, speed="", metrics="")

    def __enter__(self) -> "_Bar":
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def __call__(self, step: int, total: int, record: Record) -> None:
        fields: dict[str, Any] = {"metrics": self._summary.update(step, record)}
        speed = record.get("steps_per_second")
        if isinstance(speed, float):
            fields["speed"] = f"{speed:.1f} steps/s"
        self._bar.update(self._task, total=total, completed=step, **fields)

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

    SECONDS = bars.SECONDS

    def __init__(self, title: str) -> None:
        self._title = title
        self._summary = _Summary()
        self._last = time.monotonic()
        self._speed: float | None = None

    def __call__(self, step: int, total: int, record: Record) -> None:
        text = self._summary.update(step, record)
        # The record of an evaluation has no speed: keep the last one.
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
