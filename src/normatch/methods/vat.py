"""VAT: the prediction stays the same under the small change of an image that alters it most (Miyato et al. 2018)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.func import grad

from normatch.methods.base import Batch, Method, Outcome, Settings, Task, ViewsWanted, methods
from normatch.methods.parts.consistency import divergence
from normatch.methods.parts.norm import untracked_logits
from normatch.methods.parts.pseudo_labels import labelled_loss, pseudo_loss
from normatch.nets.model import Model

__all__ = ["VAT", "VATSettings"]


@dataclass(frozen=True)
class VATSettings(Settings):
    """The settings of VAT."""

    weight: float = 1.0
    """α, the weight of the local distributional smoothness."""
    epsilon: float = 0.144
    """ε, the length of the perturbation: the root mean square of its values, in standard deviations of the inputs. The
    paper's norm of 8 on CIFAR-10 with augmentation is 0.144 · √3072."""
    probe: float = 0.01
    """ξ, the length of the change from which the gradient is taken, in the same unit."""
    iterations: int = 1
    """Steps of the power iteration."""
    entropy: float = 0.0
    """Weight of the conditional entropy; 1 in the paper's VAT+EntMin."""

    def check(self) -> None:
        super().check()
        self.must_not_be_negative("weight", "entropy", "epsilon")
        self.must_be_positive("probe", "iterations")


@methods.named("vat")
class VAT(Method):
    """L = L_x + α · 1/N Σ KL(p(x) ‖ p(x + r)) + β · 1/N Σ H(p(x)), over all N = B + μB images of the batch.

    r is the adversarial perturbation of length ε: from a random direction d of unit length, each power iteration takes
    the gradient of KL(p(x) ‖ p(x + ξ d)) with respect to d and normalises it; r = ε d. p(x) has no gradient in the
    divergence. β, the weight of the conditional entropy, is 0 unless set.

    Perturbed images are normalised by the statistics of their batch, but leave no trace in the running ones. Lengths
    are per input value, so that ε fits images of any size and vectors; ξ is larger than the paper's 1e-6, which
    bfloat16 would round off.
    """

    summary: ClassVar[str] = "the prediction withstands adversarial perturbations"
    paper: ClassVar[str] = "Miyato et al., TPAMI 2018"
    Settings: ClassVar[type[Settings]] = VATSettings
    views: ViewsWanted = ViewsWanted(labelled=("weak",), unlabelled=("weak",))

    def __init__(self, model: Model, task: Task, settings: VATSettings) -> None:
        super().__init__(model, task, settings)
        model.backbone.plain = True  # the fused kernels have no gradient with respect to images

    def forward(self, batch: Batch) -> Outcome:
        images = torch.cat([batch.labelled[0], batch.unlabelled[0]])
        logits = self.model(images).float()
        p = logits.softmax(1)
        r = self.settings.epsilon * self.direction(images, p.detach())
        losses = {
            "labelled": labelled_loss(logits[: len(batch.labels)], batch.labels),
            "adversarial": self.settings.weight * divergence(self.perturbed(images, r), p.detach()),
        }
        if self.settings.entropy:
            losses["entropy"] = self.settings.entropy * pseudo_loss(logits, p, torch.ones_like(p[:, 0]))
        return Outcome(losses, {})

    @torch.no_grad()
    def direction(self, images: Tensor, p: Tensor) -> Tensor:
        """d, of the images' shape: that of the largest divergence from ``p`` (N, K)."""
        d = unit(torch.randn(images.shape, device=images.device))
        for _ in range(self.settings.iterations):
            # torch.func, because a call of torch.autograd inside the forward pass would not be compiled.
            d = unit(grad(lambda r: divergence(self.perturbed(images, r), p))(self.settings.probe * d))
        return d

    def perturbed(self, images: Tensor, r: Tensor) -> Tensor:
        """The logits of the images, moved by ``r`` standard deviations; the running statistics stay as they are."""
        return untracked_logits(self.model, images + r * self.model.normalise.std)


def unit(d: Tensor) -> Tensor:
    """``d`` (N, …) with a root mean square of 1 for each sample."""
    tiny = torch.finfo(d.dtype).tiny
    largest = d.abs().flatten(1).amax(1).clamp_min(tiny)  # first, because squares of small gradients vanish
    d = d / largest.view(-1, *[1] * (d.ndim - 1))
    length = d.square().flatten(1).mean(1).sqrt().clamp_min(tiny)
    return d / length.view(-1, *[1] * (d.ndim - 1))
