"""Pools of all samples, on the device or in host memory, and the stream that says which of them each step draws."""

from copy import copy

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from normatch.data.dataset import Dataset, Selected, pieces
from normatch.seeding import permutation

__all__ = ["HostPool", "Pool", "Stream"]

Indices = Tensor | NDArray[np.int64]


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

    >>> Stream(n=3, batch=2, seed=0, name="labelled").rows(0, 3).flatten().sort().values.tolist()
    [0, 0, 1, 1, 2, 2]
    """

    def __init__(self, n: int, batch: int, seed: int, name: str) -> None:
        self.n, self.batch, self.seed, self.name = n, batch, seed, name
        self._recent: dict[int, NDArray[np.int64]] = {}

    def rows(self, start: int, count: int) -> torch.Tensor:
        """The samples of steps ``start`` to ``start + count - 1``: int64 (count, batch)."""
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
