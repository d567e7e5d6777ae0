"""A training process that is killed with SIGKILL at one moment.

The moment is ``never``, ``step:N`` (before step N), ``checkpoint:N`` (with half of the N-th checkpoint
written), ``replaced:N`` (the next checkpoint in place, the N-th not yet removed) or ``record:N`` (in the middle
of the N-th line of metrics).
"""

import os
import signal
from pathlib import Path
from typing import Any, Literal, NoReturn

import torch

from normatch import recipes
from normatch.training import diagnostics
from normatch.training.metrics import Record
from normatch.training.run import RunRecorder
from normatch.training.step import Step
from normatch.training.train import train

CONFIG = recipes.digits(labels=20).replace(
    steps=20, epoch=4, batch=8, ratio=2, log_every=2, evaluate_every=4, checkpoint_every=3
)


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


def arm(moment: str) -> None:
    what, _, count = moment.partition(":")
    left = int(count or 0)

    def due() -> bool:
        nonlocal left
        left -= 1
        return left < 0

    if what == "step":
        step = Step.__call__

        def stepping(self: Step) -> None:
            if due():
                die()
            step(self)

        Step.__call__ = stepping  # type: ignore[method-assign]
    elif what == "checkpoint":
        write_bytes = Path.write_bytes

        def half(self: Path, content: Any) -> int:
            if self.parent.name == "checkpoint" and due():
                write_bytes(self, content[: len(content) // 2])
                die()
            return write_bytes(self, content)

        Path.write_bytes = half  # type: ignore[method-assign,assignment]
    elif what == "replaced":
        unlink = Path.unlink

        def removing(self: Path, missing_ok: bool = False) -> None:
            if self.parent.name == "checkpoint" and self.name.startswith("step-") and due():
                die()
            unlink(self, missing_ok)

        Path.unlink = removing  # type: ignore[method-assign]
    elif what == "record":
        write = RunRecorder.write

        def cut(self: RunRecorder, step: int, record: Record) -> None:
            if due():
                self._lines.write('{"step": 9')
                self._lines.flush()
                die()
            write(self, step, record)

        RunRecorder.write = cut  # type: ignore[method-assign]


def main(out: Path, moment: str, pool: Literal["device", "host"] = "device") -> None:
    torch.set_num_threads(1)
    diagnostics.EARLIEST = 0  # so that there are warnings of several steps to lose
    arm(moment)
    train(CONFIG.replace(pool=pool), out, resume=out.exists())
