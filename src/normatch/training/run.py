"""The folder of a run: plain files, of which those of a finished run are never overwritten."""

import contextlib
import dataclasses
import json
import os
import secrets
import shutil
import sys
import threading
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import normatch
from normatch.config import Config, read_config, to_json
from normatch.data import Corpus, Split, digest, sources
from normatch.data.split import files_of, how_to_test
from normatch.errors import UserError, reason, resume_command
from normatch.files import alone, checked, naming, read_json, read_object, read_sealed, write_json, write_sealed
from normatch.significance import describe_accuracy
from normatch.text import counted
from normatch.training.diagnostics import NOT_FINITE, Alarm
from normatch.training.metrics import Record

__all__ = ["SCORES", "START", "STAYED", "Moved", "Run", "RunRecorder", "write_warnings"]

T = TypeVar("T")

START = "start"
"""Folder, inside that of a run, of the one that it starts from, if both were trained by one call."""


class Moved(NamedTuple):
    """The places of a run's data today, where they are not those of its training."""

    data: str | None = None
    unlabelled: Path | None = None
    data_root: Path | None = None

    def applied_to(self, config: Config) -> Config:
        """The config with these places instead of its own; UserError if its data has no place."""
        if self.data not in (None, config.data) and config.data in sources:
            raise UserError(
                f"data is {self.data!r}, but the run was trained on the data set {config.data}, which does not move: "
                "leave out --data"
            )
        return config.replace(**self._given())

    def flags(self) -> list[str]:
        """The flags of the command line that name these places."""
        return [word for name, place in self._given().items() for word in (f"--{name.replace('_', '-')}", str(place))]

    def _given(self) -> dict[str, Any]:
        return {name: place for name, place in self._asdict().items() if place is not None}


STAYED = Moved()

SCORES = ("accuracy", "balanced_accuracy", "macro_f1")
"""What a ``result.json`` has of held-out samples: shares, or null without any."""

RESULT: dict[str, Any] = dict.fromkeys(SCORES, float | None) | {
    "evaluated_on": str | None,
    "n": int,
    "method": str,
    "labels": int,
    "labels_by_class": dict[str, int],
    "label_counts": dict[str, int],
    "seed": int,
    "steps": int,
    "seconds": float,
    "embedding_seconds": float,
    "hardware": str,
    "date": str,
    "versions": dict[str, str],
    "skipped": list,
}
"""What every ``result.json`` has, and of which type."""

BASELINE: dict[str, Any] = {"name": str, "features": str, "n": int, "seconds": float, "stored": bool} | dict.fromkeys(
    ("accuracy", "accuracy_of_run", "p"), float | None
)
"""What each of its ``baselines`` has, of a run on the user's own data: see :class:`training.baselines.Score`."""

WARNING = typing.get_type_hints(Alarm)
"""What every warning in ``warnings.json`` has."""


@dataclass(frozen=True)
class Run:
    """A run's folder: ``config.json``, ``split.json``, ``metrics.jsonl``, ``warnings.json``, ``checkpoint/``, and once
    it is finished ``model.safetensors``, ``model.json``, ``predictions.csv`` and ``result.json``."""

    path: Path

    @classmethod
    def create(cls, path: Path, config: Config, split: Split, corpus: Corpus, first: Config | None = None) -> "Run":
        """Create the folder atomically. ``split.json`` has what identifies the data next to the positions in it.

        ``first`` is the config of a run on the same split, inside it, that is trained before.
        """
        cls.must_be_new(path)
        about = {
            "digest": digest(corpus),
            "files": files_of(split, corpus),
            "added_labels": {str(at): name for at, name in corpus.added_labels.items()},
        }
        part = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
        with naming(path):
            try:
                for folder, made in ((part, config), (part / START, first)):
                    if made is not None:
                        (folder / "checkpoint").mkdir(parents=True)
                        write_sealed(folder / "config.json", {"normatch": normatch.__version__} | to_json(made))
                        write_sealed(folder / "split.json", {k: v for k, v in about.items() if v} | split.to_json())
                os.rename(part, path)
            except BaseException:
                shutil.rmtree(part, ignore_errors=True)
                raise
        return cls(path)

    @classmethod
    def must_be_new(cls, path: Path) -> None:
        """Raise UserError, before anything is read for it, if the run cannot be made at ``path``."""
        is_run = (path / "config.json").is_file()
        if is_run and not cls(path).finished:
            if any(warning["name"] == NOT_FINITE for warning in cls(path).warnings):
                raise UserError(f"{path} exists already, a run that diverged: delete it, or choose another --out")
            raise UserError(
                f"{path} exists already: continue it with --resume (in Python, resume=True), or choose another --out"
            )
        if path.exists():
            what = ", a finished run" if is_run else " and is no run"
            raise UserError(f"{path} exists already{what}: choose another --out")
        parent = next(folder for folder in path.absolute().parents if folder.exists())
        if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
            raise UserError(
                f"cannot make the folder {path} ({parent} is no folder that can be written to): choose another --out"
            )

    @classmethod
    def open(cls, path: Path) -> "Run":
        if not (path / "config.json").is_file():
            raise UserError(f"{path} is no run (it has no config.json): give the folder that `normatch train` wrote")
        return cls(path)

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """A lock, so that only one process at a time trains the run."""
        busy = f"{self.path} is being trained by another process: wait for it, or stop it"
        return alone(self.path / ".lock", busy)

    @property
    def config(self) -> Config:
        return read_config(self.path / "config.json")

    @property
    def first(self) -> "Run | None":
        """The run inside it that it starts from, if both were trained by one call."""
        inside = Run(self.path / START)
        return inside if (inside.path / "config.json").is_file() else None

    @property
    def split(self) -> Split:
        return self._of_split(Split.from_json)

    @property
    def digest(self) -> str | None:
        """Identifies the data: see :func:`normatch.data.digest`."""
        return self._of_split(lambda about: about.get("digest"))

    @property
    def files(self) -> dict[str, list[str]]:
        """The names of the labelled, validation and test files; empty if samples are not files."""
        return self._of_split(lambda about: dict(about.get("files", {})))

    @property
    def test_samples(self) -> object:
        """What tells its test samples from others: the names of their files or, if they are none, the data's digest."""
        return self._of_split(lambda about: tuple(about.get("files", {}).get("test", ())) or about.get("digest"))

    @property
    def added_labels(self) -> dict[int, str]:
        """The classes of training samples whose labels are not in the data but in label files, by position."""
        return self._of_split(lambda about: {int(at): str(name) for at, name in about.get("added_labels", {}).items()})

    def _of_split(self, read: Callable[[dict[str, Any]], T]) -> T:
        return self._read("split.json", lambda path: read(read_sealed(path)))

    def must_be_its_data(self, corpus: Corpus) -> None:
        """Raise UserError unless ``corpus`` is the data that the run was started with."""
        if self.digest not in (None, digest(corpus)):
            raise UserError(
                f"the data has changed since {self.path} was started: samples of {corpus.name} or their labels were "
                "added, removed or changed; restore them, or start another run with another --out"
            )

    @property
    def finished(self) -> bool:
        """Whether it was trained to the end: ``result.json`` is written last."""
        return (self.path / "result.json").is_file()

    @property
    def result(self) -> dict[str, Any]:
        """The content of ``result.json``: scores of the final averaged weights, steps, time, hardware, and so on."""
        if not self.finished:
            raise UserError(f"{self.path} is not finished: continue it with {resume_command(self.path)}")

        def read(path: Path) -> dict[str, Any]:
            result = checked({"embedding_seconds": 0.0} | read_object(path), RESULT)
            for name in SCORES:
                if result[name] is not None and not 0 <= result[name] <= 1:
                    raise ValueError(f"{name} is {result[name]!r}")
            result["baselines"] = [checked(baseline, BASELINE) for baseline in result.get("baselines", [])]
            return result

        return self._read("result.json", read)

    @property
    def accuracy(self) -> float | None:
        """Test accuracy or, without a test set, validation accuracy; None if there is neither."""
        accuracy: float | None = self.result["accuracy"]
        return accuracy

    @property
    def how_to_test(self) -> str:
        """What to do so that a run on this data has a test set, if this one had none."""
        return how_to_test(self.config.data, self.result["label_counts"])

    def describe(self) -> str:
        """The result as one line of text."""
        result = self.result
        if result["n"]:
            reached = (
                f"{describe_accuracy(result['accuracy'], result['n'], result['evaluated_on'])}, balanced accuracy "
                f"{result['balanced_accuracy']:.2%}, macro-F1 {result['macro_f1']:.2%}, "
            )
        else:
            reached = f"no accuracy: {self.how_to_test}; "
        lost = counted(len(result["skipped"]), "unreadable image")
        skipped = f", {lost} skipped (see result.json)" if result["skipped"] else ""
        names = ", ".join(warning["name"] for warning in self.warnings)
        warned = f", warnings: {names} (see warnings.json)" if names else ""
        time = f"{counted(result['steps'], 'step')} in {result['seconds']:.0f} s"
        if result["embedding_seconds"] >= 1:
            time = f"embedded in {result['embedding_seconds']:.0f} s, {time}"
        return f"{reached}{time}{skipped}{warned}: {self.path}"

    def describe_baselines(self) -> list[str]:
        """A line of text for each baseline."""
        lines = []
        if (start := self.result.get("start")) is not None:
            lines.append(f"  kept the {start['kept']} of fine-tuning: {start['why']}")
        for of in self.result["baselines"]:
            name = f"  {of['name']} on {of['features']}: "
            if of["accuracy"] is None:
                lines.append(f"{name}stored, but too few labels to score it")
            elif of["p"] is None:
                what = f"in cross-validation over the {of['n']} labels, a number that the run does not have"
                lines.append(f"{name}{of['accuracy']:.2%} {what}")
            else:
                run = f"the run {of['accuracy_of_run']:.2%}, McNemar's p {of['p']:.2g}"
                lines.append(f"{name}{of['accuracy']:.2%} ({run})")
        return lines

    @property
    def warnings(self) -> list[dict[str, Any]]:
        """The warnings raised during training: name, step, message and remedy of each."""
        if not (self.path / "warnings.json").is_file():
            return []
        return self._read("warnings.json", lambda path: [checked(warning, WARNING) for warning in read_json(path)])

    def _read(self, name: str, read: Callable[[Path], T]) -> T:
        try:
            return read(self.path / name)
        except (AttributeError, KeyError, OSError, TypeError, ValueError) as error:
            raise UserError(f"{self.path / name} cannot be read ({reason(error)}): restore it") from error

    def metrics(self) -> Iterator[dict[str, Any]]:
        """The records in ``metrics.jsonl``, each a step and its metrics."""
        path = self.path / "metrics.jsonl"
        if not path.is_file():
            return
        try:
            with path.open("rb") as lines:
                for line in lines:
                    yield _record(line)
        except ValueError as error:
            raise UserError(f"{path} cannot be read ({error}): restore it") from error

    def metrics_until(self, step: int) -> list[dict[str, Any]]:
        """The records up to ``step``, from which a run is resumed; others, and damage at the end, are dropped.

        A process that was killed leaves an incomplete last line, a power cut may leave anything. UserError unless there
        is a record of each step at which one was due.
        """
        path = self.path / "metrics.jsonl"
        lines = path.read_bytes().splitlines(keepends=True) if path.is_file() else []
        kept: list[dict[str, Any]] = []
        with contextlib.suppress(ValueError):  # nothing counts from the first damaged line on
            for record in map(_record, lines):
                if record["step"] > step:
                    break
                kept.append(record)
        config = self.config
        every = {config.log_every, config.evaluate_every or config.epoch}
        due = {at for n in every for at in range(n, step + 1, n)} | ({step} if step == config.steps else set())
        if missing := due - {record["step"] for record in kept}:
            raise UserError(
                f"{path} is damaged (it lacks the record of step {min(missing)}): restore it, or remove "
                f"{self.path / 'checkpoint'} to train from the start"
            )
        if lines:
            os.truncate(path, sum(map(len, lines[: len(kept)])))
        return kept


def _record(line: bytes) -> dict[str, Any]:
    """The content of a line of ``metrics.jsonl``; ValueError if the line is incomplete or no record."""
    try:
        record = json.loads(line.decode("utf-8"))
    except RecursionError:
        record = None
    if not line.endswith(b"\n") or not isinstance(record, dict) or not all(map(_measures, record.values())):
        raise ValueError("a line is no record of a step")
    if not isinstance(record.get("step"), int) or not isinstance(record.get("seconds"), float):
        raise ValueError("a line is no record of a step")
    return record


def _measures(value: Any) -> bool:
    """Whether a value read from JSON is one of a record's. Not by annotation: there may be millions of them."""
    return value is None or (all(map(_is_number, value)) if type(value) is list else _is_number(value))


def _is_number(value: Any) -> bool:
    return type(value) in (float, int) and abs(value) <= sys.float_info.max


class RunRecorder:
    """Appends to a run's ``metrics.jsonl`` and to its TensorBoard events, and replaces its ``warnings.json``.

    TensorBoard shows nothing of earlier files of events after the step ``resumed_at``.
    """

    def __init__(self, folder: Path, resumed_at: int) -> None:
        self._folder, self._resumed_at = folder, resumed_at
        self._path = folder / "metrics.jsonl"

    def __enter__(self) -> "RunRecorder":
        from torch.utils.tensorboard import SummaryWriter  # seconds of import, which only a run needs

        with contextlib.ExitStack() as opened:
            # TensorBoard writes in a thread; what fails there is raised by the next write, and need not be shown.
            opened.callback(setattr, threading, "excepthook", threading.excepthook)
            self._hook, threading.excepthook = threading.excepthook, self._unless_of_events
            self._lines = opened.enter_context(self._path.open("a", encoding="utf-8"))
            with naming(self._folder / "events"):
                self._events = SummaryWriter(str(self._folder / "events"), purge_step=self._resumed_at + 1)
            opened.callback(self._close)
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def _close(self) -> None:
        with naming(self._folder / "events"), contextlib.closing(self._events), naming(self._path):
            self._lines.close()

    def _unless_of_events(self, failed: threading.ExceptHookArgs) -> None:
        if type(failed.thread).__module__.partition(".")[0] != "tensorboard":
            self._hook(failed)

    def write(self, step: int, record: Record) -> None:
        with naming(self._path):
            self._lines.write(json.dumps({"step": step} | record) + "\n")
            self._lines.flush()
        with naming(self._folder / "events"):
            for name, value in record.items():
                if isinstance(value, float):
                    self._events.add_scalar(name, value, step)

    def warn(self, alarms: list[Alarm]) -> None:
        write_warnings(self._folder, alarms)


def write_warnings(folder: Path, alarms: list[Alarm]) -> None:
    write_json(folder / "warnings.json", [dataclasses.asdict(alarm) for alarm in alarms])
