"""What methods remember: rows by the number of an image, and a queue of the last rows."""

import torch
from torch import Tensor, nn

from normatch.methods.parts.similarity import log_similarities, product

__all__ = ["Queue", "remember"]


@torch.no_grad()
def remember(memory: Tensor, positions: Tensor, rows: Tensor) -> None:
    """memory[positions] = rows, in place; of an image that occurs several times in a batch, the last row is kept.

    ``memory`` is (n, …), ``positions`` (N,) and ``rows`` (N, …). All writes to one place carry the same row: on a GPU
    their order is arbitrary, and the result would be too.
    """
    order = torch.arange(len(positions), device=positions.device)
    last = torch.where(positions[:, None] == positions, order, -1).amax(1)
    memory.index_copy_(0, positions, rows[last].to(memory.dtype))


class Queue(nn.Module):
    """The last ``size`` pairs of a key (D,) and a value (K,), oldest replaced first."""

    keys: Tensor
    values: Tensor
    seen: Tensor

    def __init__(self, size: int, dim: int, classes: int) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(size, dim))
        self.register_buffer("values", torch.zeros(size, classes))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def push(self, keys: Tensor, values: Tensor) -> None:
        """Add keys (N, D) and values (N, K)."""
        size = len(self.keys)
        keys, values = keys[-size:], values[-size:]
        at = (self.seen + torch.arange(len(keys), device=keys.device)) % size
        self.keys.index_copy_(0, at, keys.to(self.keys.dtype))
        self.values.index_copy_(0, at, values.to(self.values.dtype))
        self.seen.add_(len(keys))

    @torch.no_grad()
    def attend(self, queries: Tensor, temperature: float) -> Tensor:
        """Σ_k a_k v_k (N, K), with a the softmax of queries (N, D) · keys / T over the filled places; 0 if none is."""
        filled = torch.arange(len(self.keys), device=queries.device) < self.seen
        return product(log_similarities(queries, self.keys, temperature, filled).exp(), self.values)
