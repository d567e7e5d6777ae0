"""What a person sees while a run trains: a live bar on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import TaskID

__all__ = ["Progress", "decoding", "downloading", "quiet", "shown"]

Record = dict[str, float | None]

SHOWN = (
    ("loss", "loss", "{:.3f}"),
    ("pseudo/trusted", "trusted", "{:.0%}"),
    ("test/accuracy", "test", "{:.2%}"),
    ("validation/accuracy", "validation", "{:.2%}"),
)
"""Metrics worth a place in the line: name, caption, format."""


class Progress(Protocol):
    """Told of a run's metrics as they come."""

    def __call__(self, step: int, total: int, record: Record) -> None: ...


def quiet(step: int, total: int, record: Record) -> None:
    """Shows nothing."""


@contextmanager
def shown(title: str, done: int = 0) -> Iterator[Progress]:
    """A live bar if standard error is a terminal, else a line every few seconds."""
    if sys.stderr.isatty():
        with _bar(title, done) as progress:
            yield progress
    else:
        yield _Lines(title)


@contextmanager
def downloading() -> Iterator[Callable[[str, int, int | None], None]]:
    """Told of a file's bytes as they come: a live bar on a terminal, else a line for each finished file."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as RichProgress

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    console = Console(stderr=True)
    with RichProgress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal) as bar:
        tasks: dict[str, TaskID] = {}

        def progress(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=total)
            bar.update(tasks[name], completed=done, total=total)
            if done == total and not console.is_terminal:
                print(f"{name}  {done} bytes", file=sys.stderr, flush=True)

        yield progress


@contextmanager
def decoding() -> Iterator[Callable[[int, int], None]]:
    """Told how many of how many images are decoded: a live bar on a terminal, else a line every few seconds."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with RichProgress(*columns, console=console, disable=not console.is_terminal) as bar:
        tasks: list[TaskID] = []
        last = time.monotonic()

        def progress(done: int, total: int) -> None:
            nonlocal last
            if not tasks:
                tasks.append(bar.add_task("decoding images"))
            bar.update(tasks[0], completed=done, total=total)
            now = time.monotonic()
            if not console.is_terminal and now - last >= _Lines.SECONDS:
                last = now
                print(f"decoding images  {done}/{total}", file=sys.stderr, flush=True)

        yield progress


class _Summary:
    """The newest value of each metric worth showing."""

    def __init__(self) -> None:
        self._values: dict[str, float] = {}

    def update(self, record: Record) -> str:
        self._values |= {name: value for name, value in record.items() if value is not None}
        return "  ".join(
            f"{caption} {form.format(self._values[name])}" for name, caption, form in SHOWN if name in self._values
        )


@contextmanager
def _bar(title: str, done: int) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    summary = _Summary()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[speed]}"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[metrics]}"),
    )
    with RichProgress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=None, completed=done, speed="", metrics="")

        def progress(step: int, total: int, record: Record) -> None:
            speed = record.get("steps_per_second")
            fields = {"metrics": summary.update(record)} | ({"speed": f"{speed:.1f} steps/s"} if speed else {})
            bar.update(task, total=total, completed=step, **fields)  # type: ignore[arg-type]

        yield progress


class _Lines:
    """One line at most every few seconds, and one at the end."""

    SECONDS = 5.0

    def __init__(self, title: str) -> None:
        self._title = title
        self._summary = _Summary()
        self._last = time.monotonic()

    def __call__(self, step: int, total: int, record: Record) -> None:
        text = self._summary.update(record)
        now = time.monotonic()
        if now - self._last < self.SECONDS and step < total:
            return
        self._last = now
        speed = record.get("steps_per_second")
        pace = f"  {speed:.1f} steps/s  {_clock((total - step) / speed)} left" if speed else ""
        print(f"{self._title}  {step}/{total}{pace}  {text}", file=sys.stderr, flush=True)


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}"
