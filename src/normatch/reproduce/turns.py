"""Turns on a machine, implemented by file locks."""

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
def turn(folder: Path, at_once: int, name: str = "turn") -> Iterator[None]:
    """Wait until fewer than ``at_once`` others hold a turn of this name in this folder, then hold one."""
    while (held := _any_of(folder, at_once, name)) is None:
        time.sleep(PATIENCE)
    with held:
        yield


def _any_of(folder: Path, at_once: int, name: str) -> TextIO | None:
    locks = (take(folder / f".{name}-{number}") for number in range(at_once))
    return next((lock for lock in locks if lock is not None), None)
