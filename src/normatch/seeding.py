"""Random orders that are the same on every machine and with every NumPy: stateless functions of a seed.

NumPy guarantees that the raw output of a bit generator never changes, but not that of ``permutation``; so orders are
made from raw words alone. All random draws of a run are functions of (seed, purpose, position); therefore a resumed
run equals one that was never stopped.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

__all__ = ["derive", "permutation", "sample"]


def derive(seed: int, *purpose: str | int) -> int:
    """A 63-bit seed derived from ``seed`` for one purpose, so that one seed gives independent streams.

    >>> derive(0, "views", 1) == derive(0, "views", 1), derive(0, "views", 1) == derive(0, "views", 2)
    (True, False)
    """
    text = "/".join(map(str, (seed, *purpose)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def sample(n: int, most: int, seed: int, *purpose: str | int) -> NDArray[np.int64]:
    """At most ``most`` of ``range(n)``, drawn at random, in their order."""
    return np.sort(permutation(n, seed, *purpose)[:most])


def permutation(n: int, seed: int, *purpose: str | int) -> NDArray[np.int64]:
    """A random order of ``range(n)``: the argsort (stable, so that ties are reproducible) of raw 64-bit words."""
    words = np.random.PCG64(derive(seed, *purpose)).random_raw(n)
    return np.argsort(words, kind="stable")
