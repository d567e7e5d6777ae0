"""Many small runs, as many at once as there are cores, each on one thread: the last bits depend on the number."""

import itertools
import multiprocessing
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch

from normatch.files import write_json
from normatch.training.machine import circumstances

__all__ = ["DIGITS", "write_all"]

DIGITS = "digits: test accuracy of the last averaged weights, 1,437 training and 360 test digits"

Trained = Callable[[tuple[int, int]], list[dict[str, Any]]]
"""The outcomes with so many labels and a seed."""


def write_all(path: Path, what: str, trained: Trained, labels: Iterable[int], seeds: Iterable[int]) -> None:
    """Write to ``path`` what ``trained`` returns for each number of labels and each seed, and ``what`` that is."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), context, initializer=torch.set_num_threads, initargs=(1,)) as processes:
        rows = [row for found in processes.map(trained, itertools.product(labels, seeds)) for row in found]
    torch.set_num_threads(1)  # as there, for the record
    write_json(path, {"what": what, **circumstances(), "runs": rows})
