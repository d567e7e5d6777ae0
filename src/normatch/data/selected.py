"""Some rows of an array that are read when they are asked for, so that the others need no memory."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["Inputs", "Selected", "pieces"]

PIECE = 2**24
"""Bytes that are read at once where all rows are."""


class Selected:
    """The rows ``index`` (N,) of ``array``, images (M, H, W, C) or vectors (M, D), perhaps in a memory-mapped file.

    Indexing reads the rows in question, as a new array.
    """

    def __init__(self, array: NDArray[Any], index: NDArray[np.int64]) -> None:
        self.array, self.index = array, index

    @classmethod
    def of(cls, inputs: "Inputs") -> "Selected":
        """All rows."""
        # np.take would copy a non-contiguous array on every call.
        return inputs if isinstance(inputs, cls) else cls(np.ascontiguousarray(inputs), np.arange(len(inputs)))

    def __len__(self) -> int:
        return len(self.index)

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self), *self.array.shape[1:]

    @property
    def ndim(self) -> int:
        return self.array.ndim

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    @property
    def nbytes(self) -> int:
        return len(self) * self.array[:1].nbytes

    def __getitem__(self, rows: Any) -> NDArray[Any]:
        found: NDArray[Any] = self.array[self.index[rows]]
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("selected rows cannot become an array without a copy")
        return self[:].astype(dtype or self.dtype, copy=False)

    def at(self, positions: NDArray[np.int64]) -> "Selected":
        """Some of these rows, which share the memory of the array."""
        return Selected(self.array, self.index[positions])

    def take(self, positions: NDArray[np.int64], out: NDArray[Any]) -> None:
        """Write the rows at ``positions`` (B,) to ``out``, (B, H, W, C) or (B, D)."""
        # With mode="raise" NumPy would buffer ``out``; "clip" writes to it directly.
        np.take(self.array, self.index[positions], axis=0, out=out, mode="clip")

    def split(self, size: int) -> Iterator[Tensor]:
        """Batches in order, like ``Tensor.split``: (≤ size, C, H, W) or (≤ size, D)."""
        for start in range(0, len(self), size):
            rows = torch.from_numpy(self[start : start + size])
            yield rows.permute(0, 3, 1, 2) if rows.ndim == 4 else rows


Inputs = NDArray[Any] | Selected


def pieces(inputs: Inputs) -> Iterator[slice]:
    """Slices that together are all rows, each of about PIECE bytes."""
    size = max(1, PIECE * len(inputs) // max(1, inputs.nbytes))
    return (slice(start, min(start + size, len(inputs))) for start in range(0, len(inputs), size))
