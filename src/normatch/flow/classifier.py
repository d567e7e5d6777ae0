"""The normalizing flow classifier (NFC): a RealNVP into a Gaussian mixture with one component per class."""

import torch
from torch import Tensor, nn

from normatch.errors import UserError
from normatch.flow.coupling import CouplingStack
from normatch.flow.mixture import GaussianMixture, MeansInit
from normatch.kernels import flow as fused

__all__ = ["PUBLISHED_DROPOUT", "NormalizingFlowClassifier"]

# The rate in the published code, which uses dropout in the first epoch only.
PUBLISHED_DROPOUT = 0.5


class NormalizingFlowClassifier(nn.Module):
    r"""A generative classifier of features: density and class posterior from one invertible map.

    .. math:: p_n(y \mid z) = \frac{\pi_y \mathcal N(f_n(z) \mid \mu_y, \sigma_y^2 I)}
        {\sum_k \pi_k \mathcal N(f_n(z) \mid \mu_k, \sigma_k^2 I)} \qquad \text{Eq. (1)}

    .. math:: p_n(z) = \Big| \det \frac{\partial f_n(z)}{\partial z} \Big| \sum_c \pi_c
        \mathcal N(f_n(z) \mid \mu_c, \sigma_c^2 I) \qquad \text{Eq. (5), (8)}

    with :math:`f_n` a stack of affine couplings (:class:`~normatch.flow.CouplingStack`) and the mixture of
    :class:`~normatch.flow.GaussianMixture`. FlowGMM of Izmailov et al. 2020 (arXiv:1912.13025) on features.

    :meth:`forward` and :meth:`evaluate` are the training path: they do not check the values of their input, so they
    never wait for the device. The named quantities (:meth:`log_prob`, :meth:`predict_proba`, :meth:`transform`, …)
    refuse features with NaN or infinity, which costs one wait for the device; ``torch.compile`` omits the check.
    Both compute in the parameters' precision (float32 unless converted), also inside ``torch.autocast``.

    Arguments:
        dim: The number of features d, at least 2.
        classes: The number of classes K.
        layers: The number of coupling layers ("6 coupling layers", Implementation Details).
        hidden: The width of the couplings' hidden layers; the published code has 32.
        means: The initial means of the mixture: "zero" (the paper) or "normal" (N(0, 1), the published code).
        dropout: Whether the couplings have dropout after the first ReLU, in training mode. Its rate is the 0-d tensor
            ``dropout_rate``, which starts at the published 0.5 and can be changed in place without synchronisation,
            also for a captured graph: ``flow.dropout_rate.fill_(0.0)`` switches it off. Without dropout,
            ``dropout_rate`` is None and nothing random is drawn.
        generator: CPU generator for the initial weights; torch's global one if None.

    Example:
        >>> nfc = NormalizingFlowClassifier(dim=4, classes=3, generator=torch.Generator().manual_seed(0))
        >>> z = torch.ones(5, 4)
        >>> nfc.log_prob(z).shape, nfc.predict_proba(z).shape
        (torch.Size([5]), torch.Size([5, 3]))
        >>> latent, log_det = nfc.transform(z)
        >>> torch.allclose(nfc.inverse(latent), z, atol=1e-5)
        True
        >>> nfc.sample(2, label=1).shape
        torch.Size([2, 4])
    """

    plain: bool = False
    """Whether to use the modules of this package only, even if there are faster kernels for the same result."""

    def __init__(
        self,
        dim: int,
        classes: int,
        layers: int = 6,
        hidden: int = 32,
        means: MeansInit = "zero",
        dropout: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if dim < 2:
            raise UserError(f"a coupling flow splits its features in two: dim is {dim}, but must be at least 2")
        for name, value in (("classes", classes), ("layers", layers), ("hidden", hidden)):
            if value < 1:
                raise UserError(f"{name} of a normalizing flow classifier is {value}, but must be at least 1")
        self.dim = dim
        self.classes = classes
        self.couplings = CouplingStack(dim, layers, hidden, generator)
        self.mixture = GaussianMixture(dim, classes, means, generator)
        # Set by the training schedule, so not part of the model's state.
        self.dropout_rate: Tensor | None
        self.register_buffer("dropout_rate", torch.tensor(PUBLISHED_DROPOUT) if dropout else None, persistent=False)

    def forward(self, z: Tensor) -> Tensor:
        """Class logits (N, K) of features (N, d), whose softmax is p(y | z), so that it can replace ``nn.Linear``.

        They are log p(f(z), y), without the log-determinant, which all classes share. Values are not checked.
        """
        self._check_shape(z)
        return self._pass(z)[0]

    def evaluate(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Class logits (N, K) and log p(z) (N,) of features (N, d) from one pass. Values are not checked."""
        self._check_shape(z)
        logits, log_det = self._pass(z)
        return logits, logits.logsumexp(dim=-1) + log_det

    def log_prob(self, z: Tensor) -> Tensor:
        """log p(z) (N,) of features (N, d), Eq. (5) and (8). L_u(θ_n) of Eq. (7) is minus its mean."""
        self._check_finite(z)
        return self.evaluate(z)[1]

    def class_log_prob(self, z: Tensor) -> Tensor:
        """log p(y | z) (N, K) of features (N, d), Eq. (1)."""
        self._check_finite(z)
        return self._pass(z)[0].log_softmax(dim=-1)

    def predict_proba(self, z: Tensor) -> Tensor:
        """p(y | z) (N, K) of features (N, d), Eq. (1)."""
        return self.class_log_prob(z).exp()

    def transform(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Features (N, d) to latents g = f(z) (N, d) and log |det ∂f/∂z| (N,)."""
        self._check_finite(z)
        return self._transform(z)

    def inverse(self, latent: Tensor) -> Tensor:
        """Latents (N, d) back to features (N, d), always without dropout."""
        self._check_finite(latent, "latents")
        with torch.autocast(latent.device.type, enabled=False):
            return self.couplings.inverse(latent.to(self.mixture.means.dtype))

    @torch.no_grad()
    def sample(self, n: int, label: int | None = None, generator: torch.Generator | None = None) -> Tensor:
        """Draws n features (n, d), of one class or, if ``label`` is None, of the whole mixture.

        The generator must be on the parameters' device; torch's global one if None.
        """
        if label is not None and not 0 <= label < self.classes:
            raise UserError(f"label {label} is not a class: choose from 0 to {self.classes - 1}")
        device = self.mixture.means.device
        if label is None and n:  # multinomial refuses to draw nothing
            labels = torch.multinomial(self.mixture.log_weights.exp(), n, replacement=True, generator=generator)
        else:
            labels = torch.full((n,), label or 0, device=device)
        with torch.autocast(device.type, enabled=False):
            return self.couplings.inverse(self.mixture.sample(labels, generator))

    def _pass(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """log p(f(z), y) (N, K) and the log-determinants (N,)."""
        if (self.dropout_rate is None or not self.training) and fused.applies(self, z):
            return fused.log_joint(self, z)
        latent, log_det = self._transform(z)
        with torch.autocast(z.device.type, enabled=False):
            return self.mixture(latent), log_det

    def _transform(self, z: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast(z.device.type, enabled=False):
            z = z.to(self.mixture.means.dtype)
            moved: tuple[Tensor, Tensor] = self.couplings(z, self.dropout_rate if self.training else None)
        return moved

    def _check_shape(self, z: Tensor, what: str = "features") -> None:
        if z.ndim != 2 or z.shape[1] != self.dim:
            raise UserError(f"{what} have shape {tuple(z.shape)}, but this flow takes (N, {self.dim})")

    def _check_finite(self, z: Tensor, what: str = "features") -> None:
        self._check_shape(z, what)
        # Values are skipped under torch.compile, where looking at them would break the graph.
        if torch.compiler.is_compiling():
            return
        bad = (~z.isfinite().all(dim=1)).nonzero().flatten().tolist()
        if bad:
            raise UserError(
                f"{len(bad)} of {len(z)} rows of the {what} hold NaN or infinity, the first of them row {bad[0]}: "
                "remove these rows or find what made them"
            )
