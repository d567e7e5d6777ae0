"""Random orders that are the same on every machine, for ever: functions of a seed, without state.

NumPy promises that the raw output of a bit generator never changes, but not that of ``permutation``; so orders are
made from raw words alone. A run's random draws are functions of (seed, purpose, position), which is what makes a
resumed run equal to one that was never stopped.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

__all__ = ["derive", "permutation"]


def derive(seed: int, *purpose: str | int) -> int:
    """A 63-bit seed for one purpose: independent streams from one seed.

    >>> derive(0, "views", 1) == derive(0, "views", 1), derive(0, "views", 1) == derive(0, "views", 2)
    (True, False)
    """
    text = "/".join(map(str, (seed, *purpose)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def permutation(n: int, seed: int, *purpose: str | int) -> NDArray[np.int64]:
    """A random order of ``range(n)``: raw 64-bit words, sorted (stable, so ties cannot differ between machines)."""
    words = np.random.PCG64(derive(seed, *purpose)).random_raw(n)
    return np.argsort(words, kind="stable")
