"""The folder of a run: plain files, of which those of a finished run are never overwritten."""

import json
import os
import shutil
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import normatch
from normatch.annotations import fits
from normatch.config import Config, read_config, to_json
from normatch.data import Corpus, Split
from normatch.data.split import digest, digest_of_files, digest_of_test, files_of, how_to_test
from normatch.errors import UserError, reason, resume_command
from normatch.files import checked, kind_of, read_json, read_object, replacing, write_json
from normatch.locks import take
from normatch.significance import describe_accuracy
from normatch.text import counted
from normatch.training.diagnosis import Alarm
from normatch.training.metrics import Record

__all__ = ["STAYED", "Moved", "Run"]


class Moved(NamedTuple):
    """The places of a run's data today, where they are not those of its training."""

    data: str | None = None
    unlabelled: Path | None = None
    data_root: Path | None = None

    def applied_to(self, config: Config) -> Config:
        """The config with these places instead of its own."""
        changes = {name: place for name, place in self._asdict().items() if place is not None}
        return config.replace(**changes)

    @classmethod
    def between(cls, begun: Config, now: Config) -> "Moved":
        """The places in ``now`` that are not those in ``begun``."""
        places = {name: getattr(now, name) for name in cls._fields}
        return cls(**{name: place for name, place in places.items() if place != getattr(begun, name)})

    def flags(self) -> list[str]:
        """The flags of the command line that name these places."""
        given = {name: place for name, place in self._asdict().items() if place is not None}
        return [word for name, place in given.items() for word in (f"--{name.replace('_', '-')}", str(place))]


STAYED = Moved()

RESULT: dict[str, Any] = {
    "accuracy": float | None,
    "evaluated_on": str | None,
    "n": int,
    "method": str,
    "labels": int,
    "seed": int,
    "steps": int,
    "seconds": float,
    "hardware": str,
    "date": str,
    "versions": dict[str, str],
    "skipped": list,
}
"""What every ``result.json`` has, and of which type."""

SINCE: dict[str, Any] = {"label_counts": dict[str, int], "labels_by_class": dict[str, int]}
"""What results of earlier versions lack."""

WARNING = typing.get_type_hints(Alarm)
"""What every warning in ``warnings.json`` has."""


class Run:
    """A run's folder: ``config.json``, ``split.json``, ``metrics.jsonl``, ``warnings.json``, ``checkpoint/``, and once
    it is finished ``model.safetensors``, ``model.json``, ``predictions.csv`` and ``result.json``."""

    def __init__(self, path: Path, unlabelled: Path | None = None) -> None:
        self.path = path
        self.unlabelled = unlabelled
        """Where the folder of more unlabelled images is now, if it has moved since."""

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @classmethod
    def create(cls, path: Path, config: Config, split: Split, corpus: Corpus | None = None) -> "Run":
        """Create the folder atomically. With ``corpus``, the data of the split, ``split.json`` has the names of its
        files, if items are files, and its digests next to the positions."""
        cls.must_be_new(path)
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            part.mkdir()
        except OSError as error:
            raise UserError(f"cannot make the folder {path} ({error.strerror}): choose another --out") from error
        try:
            write_json(part / "config.json", {"normatch": normatch.__version__} | to_json(config))
            write_json(part / "split.json", _about(split, corpus) | split.to_json())
            (part / "checkpoint").mkdir()
            os.rename(part, path)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
        return cls(path)

    @staticmethod
    def must_be_new(path: Path) -> None:
        """Raise UserError, before anything is read for it, if the run cannot be made at ``path``."""
        if (path / "config.json").is_file() and Run(path).finished:
            raise UserError(f"{path} exists already, a finished run: choose another --out")
        if (path / "config.json").is_file():
            raise UserError(
                f"{path} exists already: continue it with --resume (in Python, resume=True), or choose another --out"
            )
        if path.exists():
            raise UserError(f"{path} exists already and is no run: choose another --out")
        parent = next(folder for folder in path.absolute().parents if folder.exists())
        if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
            raise UserError(
                f"cannot make the folder {path} ({parent} is no folder that can be written to): choose another --out"
            )

    @classmethod
    def open(cls, path: Path, unlabelled: Path | None = None) -> "Run":
        if not (path / "config.json").is_file():
            raise UserError(f"{path} is no run (it has no config.json): give the folder that `normatch train` wrote")
        return cls(path, unlabelled)

    def alone(self) -> TextIO:
        """A lock, held until it is closed, so that only one process at a time trains the run."""
        lock = take(self.path / "config.json")
        if lock is None:
            raise UserError(f"{self.path} is being trained by another process: wait for it, or stop it")
        return lock

    @property
    def config(self) -> Config:
        return read_config(self.path / "config.json")

    @property
    def split(self) -> Split:
        try:
            return Split.from_json(read_object(self.path / "split.json"))
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"{self.path / 'split.json'} cannot be read ({error!r}): restore it or train again"
            ) from error

    @property
    def files(self) -> dict[str, list[str]]:
        """The names of the labelled, validation and test files; empty if items are not files."""
        files: dict[str, list[str]] = self._of_files("files", dict[str, list[str]])
        now = self._names_today()
        return {part: list(map(now, names)) for part, names in files.items()}

    @property
    def given(self) -> dict[str, str]:
        """The classes of training files whose labels were given apart from the data, by name."""
        given: dict[str, str] = self._of_files("given", dict[str, str])
        now = self._names_today()
        return {now(name): label for name, label in given.items()}

    def _names_today(self) -> Callable[[str], str]:
        """Gives a file its name of today: in the folder of more unlabelled images, which may have moved, it is an
        absolute path."""
        then = None if self.unlabelled is None else self.config.unlabelled
        if self.unlabelled is None or then is None:
            return str
        old, new = (os.path.join(folder, "") for folder in (then, os.path.abspath(self.unlabelled.expanduser())))
        return lambda name: new + name.removeprefix(old) if name.startswith(old) else name

    def _of_files(self, name: str, kind: Any) -> Any:
        """What split.json says of files under ``name``; empty if it says nothing."""

        def read(path: Path) -> Any:
            return checked({name: {}} | read_object(path), {name: kind})[name]

        return self._read("split.json", read)

    def has_files_of(self, corpus: Corpus) -> bool:
        """Whether ``corpus`` has the same files at the split's positions; True if items are not files."""
        return self.files in ({}, files_of(self.split, corpus))

    def has_data_of(self, corpus: Corpus) -> bool:
        """Whether ``corpus`` has the run's labels and its inputs or, where these are files, their names in the same
        order; True for runs that were started before this was stored."""
        stored = self._read("split.json")
        numbers = {"digest": digest(self.split, corpus), "digest_of_files": digest_of_files(corpus)}
        return all(stored.get(name) in (None, number) for name, number in numbers.items())

    @property
    def digest_of_test(self) -> str | None:
        """A number for the test items; None if there are none, and for runs that were started before it was stored."""
        stored: str | None = self._read("split.json").get("digest_of_test")
        return stored

    @property
    def finished(self) -> bool:
        """Whether it was trained to the end: ``result.json`` is written last."""
        return (self.path / "result.json").is_file()

    @property
    def result(self) -> dict[str, Any]:
        """The content of ``result.json``: accuracy of the final averaged weights, steps, time, hardware, and so on."""
        if not self.finished:
            raise UserError(f"{self.path} is not finished: continue it with {resume_command(self.path)}")

        def read(path: Path) -> dict[str, Any]:
            result = read_object(path)
            return checked(result, RESULT | {name: hint for name, hint in SINCE.items() if name in result})

        result: dict[str, Any] = self._read("result.json", read)
        return result

    @property
    def accuracy(self) -> float | None:
        """Test accuracy or, without a test set, validation accuracy; None if there is neither."""
        accuracy: float | None = self.result["accuracy"]
        return accuracy

    @property
    def how_to_test(self) -> str:
        """What to do so that a run on this data has a test set, if this one had none."""
        # Results of earlier versions lack the counts.
        return how_to_test(self.config.data, self.result.get("label_counts", {}))

    def describe(self) -> str:
        """The result as one line of text."""
        result = self.result
        if result["n"]:
            reached = describe_accuracy(result["accuracy"], result["n"], result["evaluated_on"]) + ", "
        else:
            reached = f"no accuracy: {self.how_to_test}; "
        lost = counted(len(result["skipped"]), "unreadable image")
        skipped = f", {lost} skipped (see result.json)" if result["skipped"] else ""
        names = ", ".join(warning["name"] for warning in self.warnings)
        warned = f", warnings: {names} (see warnings.json)" if names else ""
        steps = counted(result["steps"], "step")
        return f"{reached}{steps} in {result['seconds']:.0f} s{skipped}{warned}: {self.path}"

    @property
    def warnings(self) -> list[dict[str, Any]]:
        """The warnings raised during training: name, step, message and remedy of each."""

        def read(path: Path) -> list[dict[str, Any]]:
            content = read_json(path)
            if not isinstance(content, list):
                raise ValueError(f"it holds {kind_of(content)}, not a list")
            return [checked(warning, WARNING) for warning in content]

        warnings: list[dict[str, Any]] = []
        if (self.path / "warnings.json").is_file():
            warnings = self._read("warnings.json", read)
        return warnings

    def _read(self, name: str, read: Callable[[Path], Any] = read_object) -> Any:
        try:
            return read(self.path / name)
        except (OSError, ValueError) as error:
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
            raise _unreadable(path, error) from error

    def forget_after(self, step: int) -> None:
        """Drop the metrics of steps after ``step``, which a resumed run will repeat, and damage at the end of the file.

        A process that was killed leaves an incomplete last line, a power cut may leave anything. Damage before a
        record that is kept is an error.
        """
        path = self.path / "metrics.jsonl"
        if not path.is_file():
            return
        kept: list[bytes] = []
        damage: ValueError | None = None
        for line in path.read_bytes().splitlines(keepends=True):
            try:
                at: int = _record(line)["step"]
            except ValueError as error:
                damage = damage or error
                continue
            if at > step:
                break
            if damage:
                raise _unreadable(path, damage) from damage
            kept.append(line)
        with replacing(path) as part:
            part.write_bytes(b"".join(kept))


def _about(split: Split, corpus: Corpus | None) -> dict[str, Any]:
    """What split.json says of the data of a split besides positions."""
    if corpus is None:
        return {}
    found = {
        "files": files_of(split, corpus),
        "given": corpus.given,
        "digest": digest(split, corpus),
        "digest_of_files": digest_of_files(corpus),
        "digest_of_test": digest_of_test(corpus),
    }
    return {name: value for name, value in found.items() if value}


def _record(line: bytes) -> dict[str, Any]:
    """The content of a line of ``metrics.jsonl``; ValueError if the line is incomplete or no record."""
    record = json.loads(line.decode("utf-8"))
    if not line.endswith(b"\n") or not fits(record, Record) or not isinstance(record.get("step"), int):
        raise ValueError("a line is no record of a step")
    return dict(record)


def _unreadable(path: Path, error: ValueError) -> UserError:
    return UserError(f"{path} cannot be read ({error}): restore it")
