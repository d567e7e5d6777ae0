"""Distribution alignment: pseudo-labels whose classes are, on average, equally frequent (Section 4.1)."""

import torch
from torch import Tensor, nn

__all__ = ["Alignment"]


class Alignment(nn.Module):
    """Returns p / p̄, renormalised, where p̄ is the mean of the last ``batches`` batch means, including this one.

    The target distribution is uniform, so no factor other than 1 / p̄ is needed.
    """

    queue: Tensor
    seen: Tensor

    def __init__(self, classes: int, batches: int = 32) -> None:
        super().__init__()
        self.register_buffer("queue", torch.zeros(batches, classes))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def forward(self, p: Tensor) -> Tensor:
        """(N, K) probabilities → (N, K) aligned probabilities; remembers the batch's mean."""
        self.queue.index_copy_(0, (self.seen % len(self.queue)).view(1), p.mean(0, keepdim=True))
        self.seen.add_(1)
        average = self.queue.sum(0) / self.seen.clamp(max=len(self.queue))
        aligned = p / average.clamp_min(torch.finfo(p.dtype).tiny)
        return aligned / aligned.sum(1, keepdim=True)
