"""Affine coupling layers: the invertible map f_n of the paper, a RealNVP."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["AffineCoupling", "CouplingStack"]


class AffineCoupling(nn.Module):
    r"""Transforms one part of a vector by an affine map whose coefficients are a function of the other part.

    .. math:: y = (x + t(c)) \cdot e^{s(c)}, \qquad s(c) = g \tanh \hat s(c),
        \qquad \log \left| \det \frac{\partial y}{\partial x} \right| = \sum_i s_i(c)

    where :math:`c` is the conditioning part (N, context), :math:`x` the free part (N, free), :math:`g` a learned gain
    per dimension that starts at 1, and :math:`(t, \hat s)` a network of two hidden layers (Dinh et al. 2017,
    arXiv:1605.08803). The bound on :math:`s` keeps the map finite for features of any size.

    The usual layer, which masks half of its d inputs with zeros, is the same function with unused weight columns; this
    one does not have them. ``fan_in`` is the number of inputs of such a masked layer: it sets the initial range of the
    first linear layer, so that both start from the same distribution of functions.
    """

    def __init__(
        self, context: int, free: int, hidden: int, fan_in: int, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.input = _linear(context, hidden, fan_in, generator)
        self.middle = _linear(hidden, hidden, hidden, generator)
        self.output = _linear(hidden, 2 * free, hidden, generator)
        self.gain = nn.Parameter(torch.ones(free))

    def forward(self, context: Tensor, x: Tensor, dropout_rate: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The transformed part (N, free) and the log-scales s (N, free), whose row sums are the log-determinants."""
        shift, log_scale = self._coefficients(context, dropout_rate)
        return (x + shift) * log_scale.exp(), log_scale

    def inverse(self, context: Tensor, y: Tensor) -> Tensor:
        """The free part (N, free) that :meth:`forward`, without dropout, transforms to y."""
        shift, log_scale = self._coefficients(context, None)
        return y * (-log_scale).exp() - shift

    def _coefficients(self, context: Tensor, dropout_rate: Tensor | None) -> tuple[Tensor, Tensor]:
        hidden = torch.relu(F.linear(context, self.input.weight, self.input.bias))
        if dropout_rate is not None:
            # Not F.dropout, whose rate is a Python number that a captured graph would freeze.
            keep = torch.rand_like(hidden) >= dropout_rate
            hidden = hidden * keep / (1 - dropout_rate)
        hidden = torch.relu(F.linear(hidden, self.middle.weight, self.middle.bias))
        shift, raw = F.linear(hidden, self.output.weight, self.output.bias).chunk(2, dim=-1)
        return shift, self.gain * torch.tanh(raw)


class CouplingStack(nn.Module):
    """A sequence of coupling layers, each transforming the half that conditioned the previous layer.

    The vector is split once and joined once; in between each layer reads one half and writes the other, so swapping the
    halves costs nothing. With an odd number of dimensions the second half is the larger one.
    """

    def __init__(self, dim: int, layers: int, hidden: int, generator: torch.Generator | None) -> None:
        super().__init__()
        self.hidden = hidden
        self.split_at = dim // 2
        sizes = (self.split_at, dim - self.split_at)
        self.layers = nn.ModuleList(
            AffineCoupling(sizes[i % 2], sizes[1 - i % 2], hidden, dim, generator) for i in range(layers)
        )

    def forward(self, z: Tensor, dropout_rate: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Features (N, d) to latents (N, d) and the log-determinants (N,) of the map's Jacobian."""
        context, free = z[..., : self.split_at], z[..., self.split_at :]
        log_det = z.new_zeros(z.shape[:-1])
        for layer in self.layers:
            moved, log_scale = layer(context, free, dropout_rate)
            log_det = log_det + log_scale.sum(dim=-1)
            context, free = moved, context
        halves = (context, free) if len(self.layers) % 2 == 0 else (free, context)
        return torch.cat(halves, dim=-1), log_det

    def inverse(self, latent: Tensor) -> Tensor:
        """Latents (N, d) back to features (N, d)."""
        first, second = latent[..., : self.split_at], latent[..., self.split_at :]
        context, free = (first, second) if len(self.layers) % 2 == 0 else (second, first)
        for layer in reversed(self.layers):
            assert isinstance(layer, AffineCoupling)  # ModuleList forgets the type of its items
            context, free = free, layer.inverse(free, context)
        return torch.cat((context, free), dim=-1)


def _linear(inputs: int, outputs: int, fan_in: int, generator: torch.Generator | None) -> nn.Linear:
    """A linear layer with torch's default initial distribution, U(±1/√fan_in), drawn from an explicit generator."""
    with torch.random.fork_rng(devices=()):  # not device="meta", whose first use imports torch's compiler
        layer = nn.Linear(inputs, outputs, device="cpu")
    bound = 1 / math.sqrt(fan_in)
    nn.init.uniform_(layer.weight, -bound, bound, generator=generator)
    nn.init.uniform_(layer.bias, -bound, bound, generator=generator)
    return layer
