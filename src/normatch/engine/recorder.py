"""What a run reports as it goes: lines of ``metrics.jsonl`` and TensorBoard events."""

import json
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

__all__ = ["Recorder", "RunRecorder", "Silent"]

Record = dict[str, float | None]


class Recorder(Protocol):
    """Takes the metrics of a step; the training loop calls it every few steps."""

    def write(self, step: int, record: Record) -> None: ...


class Silent:
    """Keeps nothing."""

    def write(self, step: int, record: Record) -> None:
        return


class RunRecorder:
    """Appends to a run's ``metrics.jsonl`` and to its TensorBoard events."""

    def __init__(self, folder: Path, resumed_at: int) -> None:
        # Imported here: tensorboard takes a second that `import normatch` should not.
        from torch.utils.tensorboard.writer import SummaryWriter

        self._lines = (folder / "metrics.jsonl").open("a", encoding="utf-8")
        self._events: Any = SummaryWriter(str(folder / "events"), purge_step=resumed_at or None)

    def __enter__(self) -> "RunRecorder":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lines.close()
        self._events.close()

    def write(self, step: int, record: Record) -> None:
        self._lines.write(json.dumps({"step": step} | record) + "\n")
        self._lines.flush()
        for name, value in record.items():
            if value is not None:
                self._events.add_scalar(name, value, step)
