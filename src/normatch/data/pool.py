"""All items as tensors on the device, from which every batch is gathered."""

from copy import copy

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from normatch.data.dataset import Dataset

__all__ = ["Pool"]


class Pool:
    """A data set in the memory of ``device``, as networks want it.

    ``inputs`` are uint8 images (N, C, H, W) or float32 vectors (N, D); ``labels`` are int64 (N,).
    """

    inputs: Tensor
    labels: Tensor

    def __init__(self, dataset: Dataset, device: torch.device | str = "cpu") -> None:
        # Copies, so that neither the caller's arrays nor ours change when the other's do.
        inputs = (dataset.inputs.transpose(0, 3, 1, 2) if dataset.is_images else dataset.inputs).copy(order="C")
        self.inputs = torch.from_numpy(inputs).to(device)
        self.labels = torch.from_numpy(dataset.labels.copy()).to(device)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def device(self) -> torch.device:
        return self.inputs.device

    def gather(self, index: Tensor) -> Tensor:
        """The inputs at the positions ``index`` (B,), int64 on the pool's device: nothing waits for the host."""
        return self.inputs.index_select(0, index)

    def subset(self, indices: Tensor | NDArray[np.int64]) -> "Pool":
        """A pool of the items at ``indices``, in that order."""
        index = torch.as_tensor(indices, dtype=torch.int64).to(self.device)
        part = copy(self)
        part.inputs, part.labels = self.gather(index), self.labels.index_select(0, index)
        return part
