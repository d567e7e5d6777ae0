"""Work in processes of their own: several runs at once, each with a fresh GPU context, none outliving this process."""

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
    """Do the tasks, ``at_once`` at a time; the number of each as it ends, and whether it went well.

    A task that fails has said why on standard error. Those under way are ended where the caller stops listening.
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
    """Do one thing in a process of its own, so that what it leaves on the GPU goes with it."""
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
    """A killed parent must not leave a run behind, which the next one would start a second time."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
