"""Record what a run reports: lines of ``metrics.jsonl``, TensorBoard events, ``warnings.json``."""

import dataclasses
import json
from pathlib import Path
from typing import Any, Protocol

from normatch.engine.diagnosis import Alarm
from normatch.engine.meter import Record
from normatch.files import write_json

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
    """Appends to a run's ``metrics.jsonl`` and to its TensorBoard events, and replaces its ``warnings.json``."""

    def __init__(self, folder: Path, resumed_at: int) -> None:
        # Imported here, because tensorboard takes a second to import.
        from torch.utils.tensorboard.writer import SummaryWriter

        self._folder = folder
        self._lines = (folder / "metrics.jsonl").open("a", encoding="utf-8")
        self._events: Any = SummaryWriter(str(folder / "events"), purge_step=resumed_at + 1)

    def __enter__(self) -> "RunRecorder":
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()
        self._events.close()

    def write(self, step: int, record: Record) -> None:
        self._lines.write(json.dumps({"step": step} | record) + "\n")
        self._lines.flush()
        for name, value in record.items():
            if isinstance(value, float):
                self._events.add_scalar(name, value, step)

    def warn(self, alarms: list[Alarm]) -> None:
        write_json(self._folder / "warnings.json", [dataclasses.asdict(alarm) for alarm in alarms])
