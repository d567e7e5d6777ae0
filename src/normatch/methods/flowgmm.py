"""FlowGMM: a normalizing flow alone as classifier, with consistency of two views (Izmailov et al. 2020)."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from normatch.flow import NormalizingFlowClassifier
from normatch.methods.base import Batch, Method, Outcome, PseudoLabels, Settings, Task, ViewsWanted, methods
from normatch.methods.parts.groups import Group, OptimConfig, sgd_and_adamw
from normatch.methods.parts.pseudo_labels import labelled_loss
from normatch.methods.parts.ramps import linear_ramp
from normatch.nets.model import HeadSpec, Model

__all__ = ["FlowGMM", "FlowGMMSettings"]


@dataclass(frozen=True)
class FlowGMMSettings(Settings):
    """The settings of FlowGMM; weights as in its published command for MNIST."""

    label_weight: float = 3.0
    """Weight of the class posterior of labelled images; 1 makes its sum with their density the joint likelihood."""
    consistency: float = 1.0
    """Weight of the consistency of two views; 0 turns it off."""
    ramp: float = 1 / 30
    """Share of the run over which the consistency's weight grows."""
    noise: float = 1.0
    """Width, in grey levels, of the uniform noise on pixels; for images of few levels their distance, 16 for digits."""
    flow_layers: int = 6
    """Coupling layers of the flow."""
    flow_hidden: int = 64
    """Width of a coupling network."""
    flow_lr: float = 1e-3
    """AdamW's learning rate for the flow."""
    flow_clip: float = 50.0
    """Largest norm of its gradient."""

    def check(self) -> None:
        self.must_not_be_negative("label_weight", "consistency", "noise")
        self.must_be_positive("flow_layers", "flow_hidden", "flow_lr", "flow_clip")
        self.must_be_probability("ramp")


@methods.named("flowgmm")
class FlowGMM(Method):
    """L = −w log p(y | x) − log p − λ log p(u' | ŷ(u)), per dimension; u and u' are two weak views of an image.

    The flow f maps each class to a Gaussian: log p(x, y) = log π_y N(f(x); μ_y, I) + log |det ∂f/∂x|. p(x) is its sum
    over the classes, log p its mean over labelled and unlabelled images, ŷ(u) the class of largest posterior. w = 1 is
    the likelihood of all that is known, as in the paper's equations; the published runs have 3. Means are drawn from
    N(0, I) and stay, as do the variances and equal class weights. The flow, trained by AdamW, predicts. The published
    code takes density and consistency of the same views, labelled ones too.

    ``--backbone identity`` is the paper's model, a flow on the input itself: a pixel gets uniform noise of one grey
    level, else its density has no bound. Our couplings are fully connected; the paper's are convolutions in scales.
    With a learned backbone the flow classifies features z. The likelihoods then take z as constants: a backbone trained
    by them would map all images to one point, where the density is highest. It learns by the flow's class posterior
    instead: − log p(y | z) − λ log p(ŷ(u) | z(u')) is added, and its gradient reaches both backbone and flow.
    """

    summary: ClassVar[str] = "a normalizing flow alone, with consistency"
    paper: ClassVar[str] = "Izmailov et al., ICML 2020"
    Settings: ClassVar[type[Settings]] = FlowGMMSettings
    views: ViewsWanted = ViewsWanted(labelled=("weak",), unlabelled=("weak", "weak"))

    def __init__(self, model: Model, task: Task, settings: FlowGMMSettings) -> None:
        super().__init__(model, task, settings)
        assert isinstance(model.head, NormalizingFlowClassifier)
        model.head.mixture.requires_grad_(False)
        self.learned = any(p.requires_grad for p in model.backbone.parameters())

    @classmethod
    def heads(cls, settings: Any) -> tuple[HeadSpec, tuple[HeadSpec, ...]]:
        return HeadSpec("nfc", settings.flow_layers, settings.flow_hidden, "normal"), ()

    def groups(self, optim: OptimConfig) -> list[Group]:
        settings = self.settings
        return sgd_and_adamw(self.parameters(), [self.model.head], optim, settings.flow_lr, settings.flow_clip)

    def forward(self, batch: Batch) -> Outcome:
        flow = self.model.head
        assert isinstance(flow, NormalizingFlowClassifier)
        inputs = torch.cat([*batch.labelled, *batch.unlabelled])
        if not inputs.is_floating_point():
            inputs = inputs + self.settings.noise * (torch.rand(inputs.shape, device=inputs.device) - 0.5)
        z = self.model.features(inputs)
        sizes, dim = [len(batch.labels), *map(len, batch.unlabelled)], z.shape[1]

        logits, log_p = flow.evaluate(z.detach())
        log_det = log_p - logits.logsumexp(1)
        labelled, first, second = logits.split(sizes)  # log p(x, y) for each class y, but for the log-determinant
        p = first.detach().softmax(1)
        label = p.argmax(1)
        grown = self.settings.consistency * linear_ramp(batch.step, self.steps, self.settings.ramp)
        given_label = (second + log_det[-len(second) :, None] - flow.mixture.log_weights).gather(1, label[:, None])
        losses = {
            "labelled": self.settings.label_weight * labelled_loss(labelled, batch.labels) / dim,
            "density": -log_p[: -len(second)].mean() / dim,
            "consistency": -grown * given_label.mean() / dim,
        }
        if self.learned:
            of_labelled, _, of_second = flow(z).split(sizes)
            losses["posterior"] = labelled_loss(of_labelled, batch.labels)
            losses["posterior_consistency"] = grown * labelled_loss(of_second, label)
        ones = torch.ones_like(p[:, 0])
        return Outcome(losses, {}, PseudoLabels(label, ones, ones > 0, p.amax(1), None))
