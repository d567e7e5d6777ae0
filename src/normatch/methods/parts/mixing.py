"""Mixup: convex sums of two samples and of their targets, with shares from a Beta distribution."""

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn

__all__ = ["Beta", "mixup"]


class Beta(nn.Module):
    """Draws from Beta(α, α) by its quantile function, read off a table: a uniform draw and a linear interpolation, so
    that no rejection loop stands in the captured step."""

    POINTS = 4097

    quantiles: Tensor

    def __init__(self, alpha: float) -> None:
        super().__init__()
        values = stats.beta.ppf(np.linspace(0, 1, self.POINTS), alpha, alpha)
        self.register_buffer("quantiles", torch.tensor(values, dtype=torch.float32), persistent=False)

    def forward(self, n: int) -> Tensor:
        """(n,) independent draws."""
        at = torch.rand(n, device=self.quantiles.device) * (self.POINTS - 1)
        low = at.long().clamp(max=self.POINTS - 2)
        return torch.lerp(self.quantiles[low], self.quantiles[low + 1], at - low)


def mixup(x: Tensor, y: Tensor, share: Tensor, partner: Tensor) -> tuple[Tensor, Tensor]:
    """share · x + (1 − share) · x[partner], and y the same: x (N, …), y (N, K), share (N,) or (), partner (N,).

    Images stay on their scale of 0 … 255, of which the model takes floats too.
    """
    x, share = x.float(), share.expand(len(x))
    of_x = share.view(-1, *[1] * (x.ndim - 1))
    return torch.lerp(x[partner], x, of_x), torch.lerp(y[partner], y, share[:, None])
