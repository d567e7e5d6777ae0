"""The class-conditional Gaussian mixture behind the flow, in closed form."""

import math
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normatch.errors import UserError

__all__ = ["SCALE_FLOOR", "GaussianMixture", "MeansInit"]

MeansInit = Literal["zero", "normal"]

# Lower bound of σ: at σ → 0 the likelihood is unbounded; it also bounds 1/σ², so that nothing overflows.
SCALE_FLOOR = 1e-3


class GaussianMixture(nn.Module):
    r"""One isotropic Gaussian per class, with trained means, scales and class weights.

    .. math:: \log p(g, y) = \log \pi_y - \tfrac d2 \log 2\pi - d \log \sigma_y
        - \frac{\lVert g - \mu_y \rVert^2}{2 \sigma_y^2}

    This is the joint behind Eq. (1) of the paper, with :math:`\pi = \mathrm{softmax}(w)` and
    :math:`\sigma = \mathrm{softplus}(r)`, plus a floor of 0.001. "Weights of GMM, initialized as 1 for each class, μ
    (init. as 0) and Σ (init. as 1)" (Implementation Details).

    The distance is summed from differences. Expanding it to :math:`\lVert g \rVert^2 - 2 g^\top \mu + \lVert \mu
    \rVert^2` would be one matrix product, but its rounding error is that of the norms, not of the distance: at latents
    of 1e4 a squared distance of 100 would have an error of 1,000. ``torch.cdist`` computes differences without storing
    all N·K·d, which for 50,000 features of CIFAR-100 (K = 100, d = 512) would be 10 GB.
    """

    def __init__(
        self, dim: int, classes: int, means: MeansInit = "zero", generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        if means not in get_args(MeansInit):
            known = ", ".join(get_args(MeansInit))
            raise UserError(f"unknown start of the mixture's means {means!r}: choose from {known}")
        start = torch.zeros(classes, dim) if means == "zero" else torch.randn(classes, dim, generator=generator)
        self.means = nn.Parameter(start)
        self.raw_scales = nn.Parameter(torch.full((classes,), math.log(math.expm1(1 - SCALE_FLOOR))))
        self.weight_logits = nn.Parameter(torch.ones(classes))

    @property
    def scales(self) -> Tensor:
        """The standard deviations σ (K,)."""
        return F.softplus(self.raw_scales) + SCALE_FLOOR

    @property
    def log_weights(self) -> Tensor:
        """The logarithms of the class weights π (K,)."""
        return F.log_softmax(self.weight_logits, dim=0)

    def forward(self, latent: Tensor) -> Tensor:
        """log p(g, y) of latents (N, d) for every class: (N, K)."""
        dim = latent.shape[-1]
        # The default mode of cdist would expand the square for more than 25 rows.
        distances = torch.cdist(latent, self.means, compute_mode="donot_use_mm_for_euclid_dist")
        scales = self.scales
        given_class = -0.5 * (distances / scales).square() - dim * (scales.log() + 0.5 * math.log(2 * math.pi))
        return given_class + self.log_weights

    def sample(self, labels: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """One latent (N, d) of each class in labels (N,)."""
        means = self.means[labels]
        noise = torch.randn(means.shape, dtype=means.dtype, device=means.device, generator=generator)
        return means + self.scales[labels].unsqueeze(-1) * noise
