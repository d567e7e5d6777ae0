"""Pools of all items, from which batches are gathered: on the device, or in host memory if they do not fit."""

from copy import copy

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from normatch.data.dataset import Dataset
from normatch.data.selected import Selected, pieces

__all__ = ["HostPool", "Pool"]

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
        """A pool of the items at ``indices``, in that order."""
        index = torch.as_tensor(indices, dtype=torch.int64).to(self.device)
        part = copy(self)
        part.inputs, part.labels = self.gather(index), self.labels.index_select(0, index)
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
        """A pool of the items at ``indices``, in that order, which shares the inputs' memory."""
        index = torch.as_tensor(indices, dtype=torch.int64).cpu()
        part = copy(self)
        part.inputs = self.inputs.at(index.numpy())
        part.labels = self.labels.index_select(0, index.to(self.device))
        return part
