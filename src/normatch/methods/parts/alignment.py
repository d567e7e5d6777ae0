"""Distribution alignment: pseudo-labels whose classes are, on average, equally frequent (Section 4.1)."""

import torch
from torch import Tensor, nn

__all__ = ["Alignment"]


class Alignment(nn.Module):
    """p / p̄, renormalised, with p̄ the mean of the last ``batches`` batch means, this one included.

    The target is the uniform distribution, so dividing by the running mean is all there is to it.
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
