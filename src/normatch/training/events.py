"""Scalars for TensorBoard, written at once: the errors of its own writer, a thread, would end up on the screen."""

import os
import socket
import time
from pathlib import Path
from typing import Any, BinaryIO

from normatch.files import naming

__all__ = ["Events"]


class Events:
    """A file of events in ``folder``. TensorBoard shows nothing of earlier files after the step ``resumed_at``."""

    def __init__(self, folder: Path, resumed_at: int) -> None:
        # Imported here: it takes a tenth of a second.
        from tensorboard.compat.proto import event_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._proto: Any = event_pb2
        folder.mkdir(exist_ok=True)
        self._path, self._file = _new_file(folder)
        self._records: Any = RecordWriter(self._file)
        start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._write(file_version="brain.Event:2")
        self._write(step=resumed_at + 1, session_log=start)

    def write(self, step: int, scalars: dict[str, float]) -> None:
        # One event for each: TensorBoard's own files have it so.
        for name, value in scalars.items():
            self._write(step=step, summary={"value": [{"tag": name, "simple_value": value}]})
        with naming(self._path):
            self._file.flush()

    def close(self) -> None:
        with naming(self._path):
            self._file.close()

    def _write(self, **content: Any) -> None:
        event = self._proto.Event(wall_time=time.time(), **content)
        with naming(self._path):
            self._records.write(event.SerializeToString())


def _new_file(folder: Path) -> tuple[Path, BinaryIO]:
    """TensorBoard reads files in the order of their names, which begin with the time."""
    number = 0
    while True:
        path = folder / f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.{number}"
        try:
            return path, path.open("xb")
        except FileExistsError:
            number += 1
