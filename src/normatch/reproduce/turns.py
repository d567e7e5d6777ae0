"""Turns on a GPU, implemented by file locks."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from normatch.locks import take

__all__ = ["turn"]

PATIENCE = 0.1
"""Seconds between two attempts to get a turn."""


@contextlib.contextmanager
def turn(folder: Path, at_once: int) -> Iterator[None]:
    """Wait until fewer than ``at_once`` others hold a turn in this folder, then hold one."""
    while (held := _any_of(folder, at_once)) is None:
        time.sleep(PATIENCE)
    with held:
        yield


def _any_of(folder: Path, at_once: int) -> TextIO | None:
    locks = (take(folder / f".turn-{number}") for number in range(at_once))
    return next((lock for lock in locks if lock is not None), None)
