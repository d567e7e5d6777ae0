"""Checkpoints: all that a resumed run needs in one safetensors file, written atomically, without pickle."""

import os
import zlib
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from safetensors.torch import save as save_tensors
from torch import Tensor

from normatch.errors import UserError, reason
from normatch.files import PARTS, replacing

__all__ = ["Writer", "load_latest", "newest_step", "save"]

CHECKSUM = "checksum"
"""The key of a checkpoint's metadata. There is but one: safetensors writes several in any order."""


class Writer:
    """Writes the checkpoints of a run in a background thread; training only waits for the state to be copied.

    A disk can take longer for a checkpoint than a GPU for hundreds of steps. At most one is written at a time; an error
    is raised by the next call, or at the end.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing: Future[None] | None = None

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *_: object) -> None:
        with self._thread:
            self._wait()

    def save(self, step: int, tensors: dict[str, Tensor]) -> None:
        """Write the present tensors as the checkpoint of ``step``; they may change once this has returned."""
        self._wait()
        copies = {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}
        self._writing = self._thread.submit(save, self._folder, step, copies)

    def _wait(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()


def save(folder: Path, step: int, tensors: dict[str, Tensor]) -> None:
    """Write the checkpoint of ``step``, tensors on the CPU; earlier ones are removed only once it is in place."""
    folder.mkdir(exist_ok=True)
    records = folder.with_name("metrics.jsonl")
    if records.is_file():
        with records.open("rb") as lines:
            os.fsync(lines.fileno())  # a run is not resumed from this step without its records up to it
    path = folder / f"step-{step:08d}.safetensors"
    with replacing(path) as part:
        whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
        part.write_bytes(save_tensors(whole, {CHECKSUM: _checksum(step, whole)}))
    for other in (*folder.glob(PARTS), *_files(folder)):
        if other != path:
            other.unlink()


def load_latest(folder: Path) -> tuple[int, dict[str, Tensor]] | None:
    """(step, tensors) of the newest checkpoint, or None if there is none yet."""
    step = newest_step(folder)
    if not step:
        return None
    path = folder / f"step-{step:08d}.safetensors"
    try:
        with safe_open(path, framework="pt") as file:
            expected = (file.metadata() or {}).get(CHECKSUM)
        tensors = load_file(path)
        if expected != _checksum(step, tensors):
            raise SafetensorError("its checksum is another")
    except (OSError, SafetensorError) as error:
        raise UserError(
            f"checkpoint {path} is damaged ({reason(error)}): restore it, or remove it to train from the start again"
        ) from error
    return step, tensors


def _checksum(step: int, tensors: dict[str, Tensor]) -> str:
    """Of the step, names and values."""
    found = zlib.crc32(str(step).encode())
    for name in sorted(tensors):
        value = tensors[name].reshape(-1).view(torch.uint8).numpy().data
        found = zlib.crc32(value, zlib.crc32(name.encode(), found))
    return f"{found:08x}"


def newest_step(folder: Path) -> int:
    """The step of the newest checkpoint, 0 if there is none."""
    return max((int(path.stem.removeprefix("step-")) for path in _files(folder)), default=0)


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.glob("step-*.safetensors") if path.stem.removeprefix("step-").isdecimal()]
