"""The number of usable processor cores."""

import os

__all__ = ["cores"]


def cores() -> int:
    """The number of cores that this process may use (its CPU affinity) or, if unknown, of all cores of the machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
