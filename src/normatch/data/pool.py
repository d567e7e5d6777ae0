"""Pools of all samples, on the device or in host memory, and the stream that says which of them each step draws."""

from copy import copy

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from normatch.data.dataset import LARGE, Dataset, Selected, pieces
from normatch.seeding import derive, permutation

__all__ = ["HostPool", "Pool", "Stream"]

Indices = Tensor | NDArray[np.int64]

BLOCK, LANES = 32, 4096
"""Of a large data set, the samples that are read one after the other, and the blocks that are open at a time."""


class Pool:
    """A data set in the memory of ``device``, in the layout that networks take.

    ``inputs`` are uint8 images (N, C, H, W) or float32 vectors (N, D); ``labels`` are int64 (N,).
    """

    inputs: Tensor
    labels: Tensor

    def __init__(self, dataset: Dataset, device: torch.device | str = "cpu") -> None:
        # Copies, so that the pool does not share memory with the caller's arrays; of a piece at a time, which may be
        # read from a file.
        kind = torch.uint8 if dataset.is_images else torch.float32
        self.inputs = torch.empty(len(dataset), *dataset.shape, dtype=kind, device=device)
        for rows in pieces(dataset.inputs):
            piece = torch.from_numpy(np.require(dataset.inputs[rows], requirements=["C", "W"])).to(device)
            self.inputs[rows] = piece.permute(0, 3, 1, 2) if dataset.is_images else piece
        self.labels = torch.from_numpy(dataset.labels.copy()).to(device)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def device(self) -> torch.device:
        return self.inputs.device

    def gather(self, index: Tensor) -> Tensor:
        """The inputs at the positions ``index`` (B,), int64 on the pool's device; needs no synchronisation."""
        return self.inputs.index_select(0, index)

    def subset(self, indices: Indices) -> "Pool":
        """A pool of the samples at ``indices``, in that order."""
        index = torch.as_tensor(indices, dtype=torch.int64).to(self.device)
        part = copy(self)
        part.inputs, part.labels = self.inputs.index_select(0, index), self.labels.index_select(0, index)
        return part


class HostPool:
    """A data set whose inputs stay in host memory as the data set holds them, perhaps in a memory-mapped file.

    ``labels`` are int64 (N,) on ``device``; ``inputs`` are read a batch at a time.
    """

    inputs: Selected
    labels: Tensor

    def __init__(self, dataset: Dataset, device: torch.device | str = "cpu") -> None:
        self.inputs = Selected.of(dataset.inputs)
        self.labels = torch.from_numpy(dataset.labels.copy()).to(device)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def device(self) -> torch.device:
        return self.labels.device

    def subset(self, indices: Indices) -> "HostPool":
        """A pool of the samples at ``indices``, in that order, which shares the inputs' memory."""
        index = torch.as_tensor(indices, dtype=torch.int64).cpu()
        part = copy(self)
        part.inputs = self.inputs.at(index.numpy())
        part.labels = self.labels.index_select(0, index.to(self.device))
        return part


class Stream:
    """Draws ``batch`` positions of ``range(n)`` per step; each sample comes once before any comes again.

    It has no state but a cache, so a resumed run draws what the stopped one would have drawn. Epochs need not end with
    a batch: a batch may contain the end of one epoch and the start of the next, or span several.

    An epoch's order is a permutation. That of more than :data:`LARGE` samples would take gigabytes, and reading in it a
    disk access each. So those are shuffled by blocks: all blocks of :data:`BLOCK` neighbours, whose boundaries differ
    from epoch to epoch, are put one after the other in random order; that row is cut into :data:`LANES` lanes of equal
    length; and each turn draws the next sample of every lane, in random order. Two samples of a block are about a turn
    apart, so the shares of the classes in a batch of up to LANES samples vary as in a full shuffle, even if the data is
    sorted by class. The difference is between batches: until all lanes have gone on to other blocks, BLOCK · LANES
    samples later, they are drawn from the same ones.

    >>> Stream(n=3, batch=2, seed=0, name="labelled").rows(0, 3).flatten().sort().values.tolist()
    [0, 0, 1, 1, 2, 2]
    """

    def __init__(self, n: int, batch: int, seed: int, name: str) -> None:
        self.n, self.batch, self.seed, self.name = n, batch, seed, name
        self._recent: dict[int, NDArray[np.int64]] = {}

    @property
    def neighbours(self) -> int:
        """How many samples next to each other are drawn within a short time."""
        return BLOCK if self.n > LARGE else 1

    def rows(self, start: int, count: int) -> torch.Tensor:
        """The samples of steps ``start`` to ``start + count - 1``: int64 (count, batch)."""
        if count < 1:
            return torch.empty(0, self.batch, dtype=torch.int64)
        first, last = start * self.batch, (start + count) * self.batch
        epochs = range(first // self.n, (last - 1) // self.n + 1)
        orders = {epoch: self._order(epoch) for epoch in epochs}
        # Keep the last orders: the next call most likely begins where this one ends.
        self._recent = {epoch: orders[epoch] for epoch in epochs[-2:]}
        pieces = [
            self._drawn(epoch, order, max(0, first - epoch * self.n), min(self.n, last - epoch * self.n))
            for epoch, order in orders.items()
        ]
        return torch.from_numpy(np.concatenate(pieces)).reshape(count, self.batch)

    def _order(self, epoch: int) -> NDArray[np.int64]:
        """The epoch's order of all samples or, of a large data set, of all blocks, of which the last is shorter."""
        known = self._recent.get(epoch)
        if known is not None:
            return known
        n = self.n // BLOCK if self.n > LARGE else self.n
        order = permutation(n, self.seed, "stream", self.name, epoch)
        return np.append(order, n) if self.n > LARGE else order

    def _drawn(self, epoch: int, order: NDArray[np.int64], first: int, last: int) -> NDArray[np.int64]:
        """The draws ``first`` to ``last - 1`` of the epoch."""
        if self.n <= LARGE:
            return order[first:last]
        starts = np.arange(LANES + 1) * self.n // LANES
        lengths = np.diff(starts)
        places = []
        for turn in range(first // LANES, (last - 1) // LANES + 1):
            lanes = permutation(LANES, self.seed, "turn", self.name, epoch, turn)
            lanes = lanes[lengths[lanes] > turn]
            # Each lane begins elsewhere, so that not all come to a new block, which is to be read, in the same turn.
            places.append(starts[lanes] + (turn + lanes - starts[lanes]) % lengths[lanes])
        at = np.concatenate(places)[first % LANES :][: last - first]
        shift = derive(self.seed, "shift", self.name, epoch) % self.n
        found: NDArray[np.int64] = (order[at // BLOCK] * BLOCK + at % BLOCK + shift) % self.n
        return found
