"""Keep memory that a step frees for the next step, instead of returning it to the system."""

import contextlib
import ctypes
import sys
from collections.abc import Iterator

__all__ = ["kept_memory"]

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Parameters M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of glibc's ``mallopt``."""

LARGEST_BLOCK = 32 * 1024**2
"""The largest threshold that every glibc accepts; larger tensors are still mapped anew each time. glibc's own, which
grows with the blocks that are freed as long as none is set, ends there too."""


@contextlib.contextmanager
def kept_memory() -> Iterator[None]:
    """A context in which freed memory stays with the process; on exit, free memory is returned to the system.

    The activations of a step are tensors of several MB. By default glibc returns their memory when they are freed, and
    the next step waits while the system maps and zeroes the same pages again. Without glibc this has no effect.
    """
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    if libc is None or not hasattr(libc, "mallopt"):
        yield
        return
    libc.mallopt(MMAP_THRESHOLD, LARGEST_BLOCK)
    libc.mallopt(TRIM_THRESHOLD, 2**30)
    try:
        yield
    finally:
        # Not the values that glibc starts with: once set, they would stay so low, and each large block be mapped anew.
        libc.mallopt(MMAP_THRESHOLD, LARGEST_BLOCK)
        libc.mallopt(TRIM_THRESHOLD, 2 * LARGEST_BLOCK)
        libc.malloc_trim(0)
