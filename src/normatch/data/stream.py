"""Which items each training step draws: random orders of all items, one after another, a function of the step alone."""

import numpy as np
import torch
from numpy.typing import NDArray

from normatch.errors import UserError
from normatch.seeding import permutation

__all__ = ["Stream"]


class Stream:
    """Draws ``batch`` positions of ``range(n)`` per step; each item comes once before any comes again.

    It has no state but a cache, so a resumed run draws what the stopped one would have drawn. Epochs need not end with
    a batch: a batch may contain the end of one epoch and the start of the next, or span several.

    >>> Stream(n=3, batch=2, seed=0, name="labelled").rows(0, 3).flatten().sort().values.tolist()
    [0, 0, 1, 1, 2, 2]
    """

    def __init__(self, n: int, batch: int, seed: int, name: str) -> None:
        if n < 1 or batch < 1:
            raise UserError(f"stream {name!r} draws {batch} of {n} items a step: both must be at least 1")
        self.n, self.batch, self.seed, self.name = n, batch, seed, name
        self._recent: dict[int, NDArray[np.int64]] = {}

    def rows(self, start: int, count: int) -> torch.Tensor:
        """The items of steps ``start`` to ``start + count - 1``: int64 (count, batch)."""
        if count < 1:
            return torch.empty(0, self.batch, dtype=torch.int64)
        first, last = start * self.batch, (start + count) * self.batch
        epochs = range(first // self.n, (last - 1) // self.n + 1)
        orders = {epoch: self._order(epoch) for epoch in epochs}
        # Keep the last orders: the next call most likely begins where this one ends.
        self._recent = {epoch: orders[epoch] for epoch in epochs[-2:]}
        pieces = [order[max(0, first - epoch * self.n) : last - epoch * self.n] for epoch, order in orders.items()]
        return torch.from_numpy(np.concatenate(pieces)).reshape(count, self.batch)

    def _order(self, epoch: int) -> NDArray[np.int64]:
        known = self._recent.get(epoch)
        return permutation(self.n, self.seed, "stream", self.name, epoch) if known is None else known
