"""Record what a run reports: lines of ``metrics.jsonl``, TensorBoard events, ``warnings.json``."""

import contextlib
import dataclasses
import json
from pathlib import Path
from typing import Protocol

from normatch.files import naming, write_json
from normatch.training.diagnostics import Alarm
from normatch.training.metrics import Record

__all__ = ["Recorder", "RunRecorder", "Silent"]


class Recorder(Protocol):
    """Takes metrics every few steps and, whenever there is a new alarm, all alarms so far."""

    def write(self, step: int, record: Record) -> None: ...

    def warn(self, alarms: list[Alarm]) -> None: ...


class Silent:
    """Records nothing."""

    def write(self, step: int, record: Record) -> None:
        return

    def warn(self, alarms: list[Alarm]) -> None:
        return


class RunRecorder:
    """Appends to a run's ``metrics.jsonl`` and to its TensorBoard events, and replaces its ``warnings.json``.

    TensorBoard shows nothing of earlier files of events after the step ``resumed_at``.
    """

    def __init__(self, folder: Path, resumed_at: int) -> None:
        from torch.utils.tensorboard import SummaryWriter  # seconds of import, which only a run needs

        self._folder = folder
        self._path = folder / "metrics.jsonl"
        self._lines = self._path.open("a", encoding="utf-8")
        self._events = SummaryWriter(str(folder / "events"), purge_step=resumed_at + 1)

    def __enter__(self) -> "RunRecorder":
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.closing(self._events), naming(self._path):
            self._lines.close()

    def write(self, step: int, record: Record) -> None:
        with naming(self._path):
            self._lines.write(json.dumps({"step": step} | record) + "\n")
            self._lines.flush()
        for name, value in record.items():
            if isinstance(value, float):
                self._events.add_scalar(name, value, step)

    def warn(self, alarms: list[Alarm]) -> None:
        write_json(self._folder / "warnings.json", [dataclasses.asdict(alarm) for alarm in alarms])
