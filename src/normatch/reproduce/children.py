"""Child processes: several runs at once, each with a fresh GPU context, none outliving this process."""

import multiprocessing
import multiprocessing.connection
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.context import SpawnProcess
from typing import Any

import torch

from normatch.errors import UserError

__all__ = ["apart", "side_by_side"]

_SPAWN = multiprocessing.get_context("spawn")

Task = tuple[Callable[..., None], tuple[Any, ...]]


def side_by_side(tasks: Iterable[Task], at_once: int) -> Iterator[tuple[int, bool]]:
    """Run the tasks, ``at_once`` at a time; yield the number of each when it ends, and whether it succeeded.

    A failed task has printed the reason on standard error. If the generator is closed, running tasks are terminated.
    """
    waiting = list(enumerate(tasks))[::-1]
    threads = max(1, torch.get_num_threads() // at_once)
    running: dict[SpawnProcess, int] = {}
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                number, (action, arguments) = waiting.pop()
                child = _SPAWN.Process(target=_work, args=(threads, action, *arguments))
                child.start()
                running[child] = number
            ended = multiprocessing.connection.wait([child.sentinel for child in running])
            for child in [child for child in running if child.sentinel in ended]:
                child.join()
                yield running.pop(child), child.exitcode == 0
    finally:
        for child in running:
            child.terminate()
            child.join()


def apart(action: Callable[..., None], *arguments: Any) -> None:
    """Run one task in a child process, so that the GPU memory it uses is freed at its end."""
    for _ in side_by_side([(action, arguments)], 1):
        pass


def _work(threads: int, action: Callable[..., None], *arguments: Any) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    try:
        action(*arguments)
    except UserError as error:
        print(f"normatch: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(1)


def _end_with_parent() -> None:
    """End this process when its parent ends, even if killed: a later call would otherwise start the same run again."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
