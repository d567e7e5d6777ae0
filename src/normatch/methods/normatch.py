"""NorMatch: pseudo-labels weighted by the consensus of the softmax head and a normalizing-flow classifier."""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from normatch.errors import UserError
from normatch.flow import NormalizingFlowClassifier
from normatch.flow.classifier import PUBLISHED_DROPOUT
from normatch.methods.base import Batch, Outcome, PseudoLabels, Settings, Task, methods
from normatch.methods.parts.consensus import Consensus, ramp
from normatch.methods.parts.groups import Group, OptimConfig, sgd_and_adamw
from normatch.methods.parts.pseudo_labels import AdaptiveWeights, targets
from normatch.methods.parts.weak_to_strong import WeakToStrong, WeakToStrongSettings
from normatch.nets.model import HeadSpec, Model

__all__ = ["NorMatch", "NorMatchSettings"]


@dataclass(frozen=True)
class NorMatchSettings(WeakToStrongSettings):
    """The settings that the paper ablates, with its defaults; two that it does not have; the flow; deviations of the
    published code."""

    pseudo_label: Literal["soft", "onehot"] = "soft"
    """The target of the strong view. One-hot on STL-10 and in the ablations without alignment (Section 4.1)."""
    alignment: bool = True
    """Distribution alignment of the pseudo-labels (Table 5)."""
    consensus: Literal["min", "drop"] = "min"
    """Weight of a pseudo-label without consensus: the least confidence (eq. 3), or 0 (the variant of Table 1)."""
    auxiliary: Literal["nfc", "mlp", "nfc+nfc"] = "nfc"
    """The auxiliary classifier: a flow, the paper's softmax MLP (Table 2), or two flows, of which the
    first alone has NUM (Table 4)."""
    head: Literal["softmax", "nfc"] = "softmax"
    """The classifier that predicts (Table 2)."""
    stop_gradient: bool = True
    """Stop the gradient of the auxiliary losses before the backbone (Table 3)."""
    auxiliary_pseudo_labels: bool = False
    """Train the auxiliary classifier on pseudo-labels as well (Table 4)."""
    num_weight: float = 1e-6
    """λ, the weight of the unsupervised likelihood (eq. 10, Figure 5); 0 turns NUM off."""

    decide_after: float = 1.0
    """Share of the run after which soft pseudo-labels become one-hot; 1: never. Not in the paper; for short runs."""
    adaptive: bool = False
    """Multiply the weights by SoftMatch's, which are lower where the head is less confident than it is on average; with
    ``decide_after``, those of one-hot pseudo-labels only. Not in the paper; in short runs it helped."""

    flow_layers: int = 6
    """Coupling layers (Section 4.1)."""
    flow_hidden: int = 32
    """Width of a coupling network."""
    flow_lr: float = 1e-3
    """AdamW's learning rate for the auxiliary classifier (Section 4.1)."""
    flow_clip: float = 50.0
    """Largest norm of the flow's gradient."""
    flow_ramp: int = 5
    """Epochs over which both auxiliary losses grow linearly; they are 0 during the first. 0 turns the ramp off."""
    means: Literal["zero", "normal"] = "zero"
    """Initial means of the mixture: 0 (the paper) or N(0, 1) (its published code)."""
    flow_dropout: Literal["off", "first-epoch", "always"] = "off"
    """Dropout of ½ in the coupling networks: the paper mentions none; the published code has it in epoch 0 only."""
    accumulate_mixture: bool = False
    """Never zero the gradients of the mixture, nor clip them, as the published code does by mistake."""

    def check(self) -> None:
        for name in ("num_weight", "flow_lr", "flow_ramp"):
            if getattr(self, name) < 0:
                raise UserError(f"settings.{name} is {getattr(self, name)}: give a number that is not negative")
        for name in ("flow_layers", "flow_hidden", "flow_clip"):
            if getattr(self, name) <= 0:
                raise UserError(f"settings.{name} is {getattr(self, name)}: give a positive number")
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
    """L = L_x(θ_d) + L_u(θ_d) + L_x(θ_n) + λ L_u(θ_n) (eq. 10).

    Pseudo-labels come from the softmax head; their weight τ (eq. 3) is 1 where the flow agrees.
    """

    summary: ClassVar[str] = "pseudo-labels weighted by the consensus with a normalizing flow"
    Settings: ClassVar[type[Settings]] = NorMatchSettings

    epoch: Tensor
    late: Tensor
    """The first step with decided pseudo-labels."""

    def __init__(self, model: Model, task: Task, settings: NorMatchSettings) -> None:
        super().__init__(model, task, settings)
        self.consensus = Consensus(model.auxiliary, settings.stop_gradient, settings.consensus)
        self.adaptive = AdaptiveWeights(task.classes) if settings.adaptive else None
        self.flows = [m for m in (model.head, *model.auxiliary) if isinstance(m, NormalizingFlowClassifier)]
        # As numbers they would be part of the compiled code, which a run of another length could not use.
        self.register_buffer("epoch", torch.tensor(task.epoch), persistent=False)
        self.register_buffer("late", torch.tensor(round(settings.decide_after * task.steps)), persistent=False)

    @classmethod
    def heads(cls, settings: NorMatchSettings) -> tuple[HeadSpec, tuple[HeadSpec, ...]]:
        dropout = settings.flow_dropout != "off"
        nfc = HeadSpec("nfc", settings.flow_layers, settings.flow_hidden, settings.means, dropout)
        auxiliary = {"nfc": (nfc,), "nfc+nfc": (nfc, nfc), "mlp": (HeadSpec("mlp", settings.flow_layers),)}
        return (nfc if settings.head == "nfc" else HeadSpec()), auxiliary[settings.auxiliary]

    def forward(self, batch: Batch) -> Outcome:
        self._set_dropout(batch.step)
        z_labelled, z_weak, z_strong = self.embed(batch)
        p = self.predict(z_weak)
        outputs = self.consensus.outputs(z_labelled, z_weak)
        tau, agree, auxiliary_confidence = self.consensus.weigh(p, outputs)
        target, weight = self._decide(p, tau, batch.step)

        logits_labelled, logits_strong = self.classify(z_labelled, z_strong)
        losses = self.losses(logits_labelled, batch.labels, logits_strong, target, weight)
        pseudo = (p, tau) if self.settings.auxiliary_pseudo_labels else None
        auxiliary = self.consensus.losses(outputs, batch.labels, self.settings.num_weight, pseudo)
        grown = ramp(batch.step, self.epoch, self.settings.flow_ramp)
        losses |= {name: grown * loss for name, loss in auxiliary.items()}
        return Outcome(losses, {}, PseudoLabels(p.argmax(1), weight, agree, p.amax(1), auxiliary_confidence))

    def _decide(self, p: Tensor, tau: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
        """What ``losses`` takes as pseudo-labels and weights: p and τ until ``decide_after`` of the run, then p made
        one-hot and, if ``adaptive`` is on, τ times the weight of its confidence. Without a decision, the latter from
        the start."""
        decided = tau if self.adaptive is None else tau * self.adaptive(p.amax(1))
        if self.settings.decide_after == 1:
            return p, decided
        late = step >= self.late
        return torch.where(late, targets(p, one_hot=True), p), torch.where(late, decided, tau)

    @property
    def last_start(self) -> int:
        """The flow's losses are 0 during the first epoch of their ramp."""
        return self.task.epoch if self.settings.flow_ramp else 0

    def groups(self, optim: OptimConfig) -> list[Group]:
        """SGD for backbone and softmax head; AdamW for flows and other auxiliary classifiers."""
        settings: NorMatchSettings = self.settings
        classifiers = list(self.model.auxiliary)
        if settings.head == "nfc":
            classifiers.append(self.model.head)
        groups = sgd_and_adamw(self.parameters(), classifiers, optim, settings.flow_lr, settings.flow_clip)
        if not (settings.accumulate_mixture and self.flows):
            return groups
        mixture = [p for flow in self.flows for p in flow.mixture.parameters()]
        apart = {id(p) for p in mixture}
        *others, adamw = groups
        clipped = replace(adamw, params=[p for p in adamw.params if id(p) not in apart])
        return [*others, clipped, replace(adamw, params=mixture, clip=None, accumulate=True)]

    def _set_dropout(self, step: Tensor) -> None:
        """Switch the flows' dropout off after the first epoch, where it is for that alone."""
        if self.settings.flow_dropout == "first-epoch":
            for flow in self.flows:
                assert flow.dropout_rate is not None  # HeadSpec has dropout
                flow.dropout_rate.copy_(PUBLISHED_DROPOUT * (step < self.epoch))
