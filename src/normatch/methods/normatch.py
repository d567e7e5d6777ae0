"""NorMatch: pseudo-labels weighted by the consensus of the softmax head and a normalizing-flow classifier."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from normatch.errors import UserError
from normatch.flow import NormalizingFlowClassifier
from normatch.flow.classifier import PUBLISHED_DROPOUT
from normatch.methods.base import Batch, Outcome, Settings, Task, methods
from normatch.methods.parts.groups import Group, OptimConfig, sgd_and_adamw
from normatch.methods.parts.pseudo_labels import AdaptiveWeights, targets
from normatch.methods.parts.weak_to_strong import WeakToStrong, WeakToStrongSettings
from normatch.nets.model import HeadSpec, Model

__all__ = ["NorMatch", "NorMatchSettings"]


@dataclass(frozen=True)
class NorMatchSettings(WeakToStrongSettings):
    """The template's settings with the paper's defaults; those that it ablates; two that it does not have; deviations
    of the published code."""

    of_consensus: ClassVar[tuple[str, ...]] = (
        *WeakToStrongSettings.of_consensus,
        "stop_gradient",
        "auxiliary_pseudo_labels",
    )

    pseudo_label: Literal["soft", "onehot", "sharpened"] = "soft"
    """The target of the strong view. One-hot on STL-10 and in the ablations without alignment (Section 4.1)."""
    alignment: bool = True
    """Distribution alignment of the pseudo-labels (Table 5)."""
    consensus: Literal["none", "nfc", "mlp", "nfc+nfc"] = "nfc"
    """The auxiliary classifier: a flow, the paper's softmax MLP (Table 2), or two flows, of which the first alone has
    NUM (Table 4). Without one all weights are 1."""
    head: Literal["softmax", "nfc"] = "softmax"
    """The classifier that predicts (Table 2)."""
    stop_gradient: bool = True
    """Stop the gradient of the auxiliary losses before the backbone (Table 3)."""
    auxiliary_pseudo_labels: bool = False
    """Train the auxiliary classifier on pseudo-labels as well (Table 4)."""

    decide_after: float = 1.0
    """Share of the run after which soft pseudo-labels become one-hot; 1: never. Not in the paper; for short runs."""
    adaptive: bool = False
    """Multiply the weights by SoftMatch's, which are lower where the head is less confident than it is on average; with
    ``decide_after``, those of one-hot pseudo-labels only. Not in the paper; in short runs it helped."""

    flow_dropout: Literal["off", "first-epoch", "always"] = "off"
    """Dropout of ½ in the coupling networks: the paper mentions none; the published code has it in epoch 0 only."""
    accumulate_mixture: bool = False
    """Never zero the gradients of the mixture, nor clip them, as the published code does by mistake."""

    def check(self) -> None:
        super().check()
        if not 0 < self.decide_after <= 1:
            raise UserError(
                f"settings.decide_after is {self.decide_after}: give a share of the run, above 0 and up to 1"
            )
        if not self.stop_gradient and self.passes == "shared":
            raise UserError(
                "settings.stop_gradient is off with settings.passes 'shared', which keeps no gradients of weak views: "
                "choose passes 'joint'"
            )


@methods.named("normatch")
class NorMatch(WeakToStrong):
    """A pseudo-label counts in full if a second, generative classifier agrees with it; there is no threshold.

    L = L_x(θ_d) + L_u(θ_d) + L_x(θ_n) + λ L_u(θ_n) (eq. 10)

    - L_u(θ_d) = 1/μB Σ τ · H(ŷ, p_d(strong)), with ŷ the aligned p_d(weak) (eq. 4).
    - NCUE: τ = 1 where argmax p_d = argmax p_n of the weak view, else min(max p_d, max p_n) (eq. 3).
    - The flow's own losses do not reach the backbone: L_x(θ_n) = 1/B Σ H(y, p_n(x)) (eq. 9), and NUM,
      L_u(θ_n) = −1/μB Σ log p_n(z(weak)) (eq. 7). They are 0 in the first epoch and grow over the first five.
    - The flow classifier (eq. 1, 5, 8): six affine couplings map features to g = f(z), in which each class is one
      isotropic Gaussian: log p_n(z, y) = log π_y + log N(g; μ_y, σ_y² I) + log |det ∂f/∂z|.
    - Distribution alignment divides p_d(weak) by the mean of the last 32 batch means and renormalises: it assumes
      equally frequent classes.

    At inference the averaged backbone and head predict; the flow is not used.
    """

    summary: ClassVar[str] = "pseudo-labels weighted by the consensus with a normalizing flow"
    paper: ClassVar[str] = "Deng et al., TMLR 2024"
    Settings: ClassVar[type[Settings]] = NorMatchSettings

    late: Tensor
    """The first step with one-hot pseudo-labels."""

    def __init__(self, model: Model, task: Task, settings: NorMatchSettings) -> None:
        super().__init__(model, task, settings)
        if self.consensus is not None:
            self.consensus.stop_gradient = settings.stop_gradient
            self.consensus.pseudo_labels = settings.auxiliary_pseudo_labels
        self.adaptive = AdaptiveWeights(task.classes) if settings.adaptive else None
        self.flows = [m for m in (model.head, *model.auxiliary) if isinstance(m, NormalizingFlowClassifier)]
        self.register_buffer("late", torch.tensor(round(settings.decide_after * task.steps)), persistent=False)

    @classmethod
    def heads(cls, settings: Any) -> tuple[HeadSpec, tuple[HeadSpec, ...]]:
        _, auxiliary = super().heads(settings)
        dropout = settings.flow_dropout != "off"
        nfc = HeadSpec("nfc", settings.flow_layers, settings.flow_hidden, settings.means, dropout)
        head = nfc if settings.head == "nfc" else HeadSpec()
        return head, tuple(nfc if spec.kind == "nfc" else spec for spec in auxiliary)

    def forward(self, batch: Batch) -> Outcome:
        if self.settings.flow_dropout == "first-epoch":
            for flow in self.flows:
                assert flow.dropout_rate is not None  # HeadSpec has dropout
                flow.dropout_rate.copy_(PUBLISHED_DROPOUT * (batch.step < self.epoch))
        return super().forward(batch)

    def weigh(self, p: Tensor, batch: Batch) -> Tensor:
        weight = super().weigh(p, batch)
        if self.adaptive is None:
            return weight
        adapted = self.adaptive(p.amax(1))
        return adapted if self.settings.decide_after == 1 else torch.where(batch.step >= self.late, adapted, weight)

    def target(self, p: Tensor, batch: Batch) -> Tensor:
        target = super().target(p, batch)
        if self.settings.decide_after == 1:
            return target
        return torch.where(batch.step >= self.late, targets(p, one_hot=True), target)

    def groups(self, optim: OptimConfig) -> list[Group]:
        """SGD for backbone and softmax head; AdamW for flows and other auxiliary classifiers."""
        settings: NorMatchSettings = self.settings
        classifiers = [*self.model.auxiliary, *([self.model.head] if settings.head == "nfc" else [])]
        groups = sgd_and_adamw(self.parameters(), classifiers, optim, settings.flow_lr, settings.flow_clip)
        if not (settings.accumulate_mixture and self.flows):
            return groups
        mixture = [p for flow in self.flows for p in flow.mixture.parameters()]
        apart = {id(p) for p in mixture}
        *others, adamw = groups
        clipped = replace(adamw, params=[p for p in adamw.params if id(p) not in apart])
        return [*others, clipped, replace(adamw, params=mixture, clip=None, accumulate=True)]
