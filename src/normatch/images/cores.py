"""How many processor cores there are to use."""

import os

__all__ = ["cores"]


def cores() -> int:
    """Not the machine's cores but those that this process may use, where the system can tell."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
