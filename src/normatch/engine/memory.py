"""Memory that one step frees and the next one takes again, kept in between."""

import contextlib
import ctypes
import sys
from collections.abc import Iterator

__all__ = ["kept_memory"]

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Names of parameters in glibc's ``malloc.h``."""

DEFAULT = 128 * 1024
"""What glibc has for both."""

LARGEST_BLOCK = 32 * 1024**2
"""The largest threshold that every glibc takes: larger tensors are still mapped afresh each time."""


@contextlib.contextmanager
def kept_memory() -> Iterator[None]:
    """Within it, freed memory stays with the process; at its end what is free goes back to the system.

    The activations of a step are tensors of MBs. By default glibc hands their memory back when they are freed, and the
    next step waits while the system maps and zeroes the same pages again. Nothing happens without glibc.
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
        libc.mallopt(MMAP_THRESHOLD, DEFAULT)
        libc.mallopt(TRIM_THRESHOLD, DEFAULT)
        libc.malloc_trim(0)
