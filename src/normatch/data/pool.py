"""Pools of all items, from which batches are gathered: on the device, or in host memory if they do not fit."""

from collections.abc import Iterator
from copy import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from normatch.data.dataset import Dataset

__all__ = ["HostInputs", "HostPool", "Pool"]

Indices = Tensor | NDArray[np.int64]


class Pool:
    """A data set in the memory of ``device``, in the layout that networks take.

    ``inputs`` are uint8 images (N, C, H, W) or float32 vectors (N, D); ``labels`` are int64 (N,).
    """

    inputs: Tensor
    labels: Tensor

    def __init__(self, dataset: Dataset, device: torch.device | str = "cpu") -> None:
        # Copies, so that the pool does not share memory with the caller's arrays.
        inputs = (dataset.inputs.transpose(0, 3, 1, 2) if dataset.is_images else dataset.inputs).copy(order="C")
        self.inputs = torch.from_numpy(inputs).to(device)
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

    inputs: "HostInputs"
    labels: Tensor

    def __init__(self, dataset: Dataset, device: torch.device | str = "cpu") -> None:
        # np.take would copy a non-contiguous array on every call.
        self.inputs = HostInputs(np.ascontiguousarray(dataset.inputs), np.arange(len(dataset)))
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
        part.inputs = HostInputs(self.inputs.array, self.inputs.index[index.numpy()])
        part.labels = self.labels.index_select(0, index.to(self.device))
        return part


class HostInputs:
    """The rows ``index`` (N,) of ``array``: images (M, H, W, C) or vectors (M, D) in host memory."""

    def __init__(self, array: NDArray[Any], index: NDArray[np.int64]) -> None:
        self.array, self.index = array, index

    def __len__(self) -> int:
        return len(self.index)

    def take(self, positions: NDArray[np.int64], out: NDArray[Any]) -> None:
        """Write the inputs at ``positions`` (B,) to ``out``, (B, H, W, C) or (B, D)."""
        # With mode="raise" NumPy would buffer ``out``; "clip" writes to it directly.
        np.take(self.array, self.index[positions], axis=0, out=out, mode="clip")

    def split(self, size: int) -> Iterator[Tensor]:
        """Batches in order, like ``Tensor.split``: (≤ size, C, H, W) or (≤ size, D)."""
        for start in range(0, len(self), size):
            rows = torch.from_numpy(self.array[self.index[start : start + size]])
            yield rows.permute(0, 3, 1, 2) if rows.ndim == 4 else rows
