"""What measuring needs: a loop to step by hand, and the seconds of what runs on a device that works on by itself."""

import contextlib
import time
from collections.abc import Callable, Iterator

import torch

from normatch.training.job import Job
from normatch.training.loop import Loop
from normatch.training.runtime import Runtime

__all__ = ["WARM_UP", "seconds_of", "stepping", "wait"]

WARM_UP = 12
"""Untimed steps at the start, in which the step is compiled and captured and kernels are chosen."""


@contextlib.contextmanager
def stepping(job: Job) -> Iterator[Loop]:
    """A loop to call the steps of one by one, within the torch settings of the job's runtime."""
    with job.runtime.scope():
        loop = Loop(job)
        loop.step.method.train()
        loop.begin_epoch(0)
        try:
            yield loop
        finally:
            loop.step.feed.close()


def seconds_of(action: Callable[[], object], count: int, runtime: Runtime) -> float:
    """Seconds of one of ``count`` calls."""
    wait(runtime)
    start = time.perf_counter()
    for _ in range(count):
        action()
    wait(runtime)
    return (time.perf_counter() - start) / count


def wait(runtime: Runtime) -> None:
    """Until the device has done all that it was given."""
    if runtime.on_gpu:
        torch.cuda.synchronize()
