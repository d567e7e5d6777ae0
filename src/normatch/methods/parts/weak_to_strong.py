"""The template of FixMatch, NorMatch and most others: pseudo-labels of weak views are the targets of strong views.

One step is predict → weigh → target → losses → extra losses. A method overrides the stages that are its own. Consensus
with an auxiliary classifier is part of the template, so that any method on it can have NorMatch's (eq. 3).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from normatch.errors import UserError
from normatch.methods.base import Batch, Method, Outcome, PseudoLabels, Settings, Task, ViewsWanted
from normatch.methods.parts.consensus import Consensus
from normatch.methods.parts.groups import Group, OptimConfig, sgd_and_adamw
from normatch.methods.parts.pseudo_labels import Alignment, labelled_loss, pseudo_loss, sharpen, targets
from normatch.methods.parts.ramps import epoch_ramp
from normatch.nets import find_backbone
from normatch.nets.model import HeadSpec, Model

__all__ = ["Features", "Pass", "WeakToStrong", "WeakToStrongSettings", "in_one_pass"]


@dataclass(frozen=True)
class WeakToStrongSettings(Settings):
    """Settings common to methods that train strong views on pseudo-labels of weak ones."""

    of_consensus: ClassVar[tuple[str, ...]] = (
        "disagree",
        "num_weight",
        "flow_layers",
        "flow_hidden",
        "flow_lr",
        "flow_clip",
        "flow_ramp",
        "means",
    )
    """Settings that do nothing without consensus."""

    pseudo_label: Literal["soft", "onehot", "sharpened"] = "onehot"
    """The target of the strong views: the probabilities themselves, one-hot at the largest, or sharpened."""
    temperature: float = 0.5
    """T of sharpened pseudo-labels, p^(1/T) renormalised."""
    alignment: bool = False
    """Distribution alignment of the pseudo-labels."""
    passes: Literal["joint", "shared"] = "joint"
    """All views in one pass through the backbone (joint, the paper), or the same with gradients of labelled and strong
    views only (shared)."""

    consensus: Literal["none", "nfc", "mlp", "nfc+nfc"] = "none"
    """The auxiliary classifier whose consensus weights the pseudo-labels (NCUE, eq. 3): a flow, the paper's softmax MLP
    (Table 2), or two flows, of which the first alone has NUM (Table 4)."""
    disagree: Literal["min", "drop"] = "min"
    """Weight of a pseudo-label without consensus: the least confidence (eq. 3), or 0 (the variant of Table 1)."""
    num_weight: float = 1e-6
    """λ, the weight of the unsupervised likelihood of a flow (eq. 10, Figure 5); 0 turns NUM off."""
    flow_layers: int = 6
    """Layers of the auxiliary classifier (Section 4.1)."""
    flow_hidden: int = 32
    """Width of a coupling network."""
    flow_lr: float = 1e-3
    """AdamW's learning rate for the auxiliary classifier (Section 4.1)."""
    flow_clip: float = 50.0
    """Largest norm of its gradient."""
    flow_ramp: int = 5
    """Epochs over which the auxiliary losses grow linearly; they are 0 during the first. 0 turns the ramp off."""
    means: Literal["zero", "normal"] = "zero"
    """Initial means of a flow's mixture: 0 (the paper) or N(0, 1) (its published code)."""

    def check(self) -> None:
        self.must_not_be_negative("num_weight", "flow_lr", "flow_ramp")
        self.must_be_positive("temperature", "flow_layers", "flow_hidden", "flow_clip")

        default = {f.name: f.default for f in fields(self)}
        for name in self.of_consensus if self.consensus == "none" else ():
            if getattr(self, name) != default[name]:
                raise UserError(
                    f"settings.{name} is {getattr(self, name)}, which is for an auxiliary classifier, but "
                    "settings.consensus is 'none': choose another, such as 'nfc', or leave it out"
                )
        if self.temperature != default["temperature"] and self.pseudo_label != "sharpened":
            raise UserError(
                f"settings.temperature is {self.temperature}, but settings.pseudo_label is {self.pseudo_label!r}: "
                "choose 'sharpened', or leave it out"
            )


class Features(NamedTuple):
    """The backbone's features of the views, each (N, D); ``strong`` has one tensor for each view that learns."""

    labelled: Tensor
    """Of the first view of the labelled images."""
    weak: tuple[Tensor, ...]
    """Of the unlabelled views called ``weak``."""
    strong: tuple[Tensor, ...]
    """Of all other unlabelled views, in their order."""
    mixing: tuple[Tensor, ...] = ()
    """How ``embed`` mixed the images, for a method that mixes them."""


class Pass(NamedTuple):
    """What a forward pass knows when it computes the losses."""

    batch: Batch
    z: Features
    logits_labelled: Tensor
    """(B, K) of the head."""
    logits_strong: tuple[Tensor, ...]
    """(μB, K) of the head, for each strong view."""
    p: Tensor
    """(μB, K) probabilities of the weak views, aligned if alignment is on."""
    target: Tensor
    """(μB, K) the pseudo-labels."""
    weight: Tensor
    """(μB,) their weights, consensus included."""


def in_one_pass(module: Callable[[Tensor], Tensor], inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """What ``module`` makes of each of the inputs (N, …), all of which it sees together."""
    made: tuple[Tensor, ...] = module(torch.cat(list(inputs))).split([len(x) for x in inputs])
    return made


class WeakToStrong(Method):
    """L = L_x + 1/μB Σ w · H(ŷ, p(strong)): the mean over all strong views."""

    Settings: ClassVar[type[Settings]] = WeakToStrongSettings
    views: ViewsWanted = ViewsWanted(labelled=("weak",), unlabelled=("weak", "strong"))

    def __init__(self, model: Model, task: Task, settings: WeakToStrongSettings) -> None:
        super().__init__(model, task, settings)
        if settings.passes == "shared" and not find_backbone(model.spec.backbone).partial:
            raise UserError(
                f"settings.passes is 'shared', which backbone {model.spec.backbone!r} does not have: choose 'joint'"
            )
        self.alignment = Alignment(task.classes) if settings.alignment else None
        self.consensus = Consensus(model.auxiliary, settings.disagree) if len(model.auxiliary) else None

    @classmethod
    def heads(cls, settings: Any) -> tuple[HeadSpec, tuple[HeadSpec, ...]]:
        layers = settings.flow_layers
        nfc, mlp = HeadSpec("nfc", layers, settings.flow_hidden, settings.means), HeadSpec("mlp", layers)
        return HeadSpec(), {"none": (), "nfc": (nfc,), "nfc+nfc": (nfc, nfc), "mlp": (mlp,)}[settings.consensus]

    def groups(self, optim: OptimConfig) -> list[Group]:
        """AdamW for auxiliary classifiers, SGD for all else."""
        if self.consensus is None:
            return super().groups(optim)
        settings = self.settings
        return sgd_and_adamw(self.parameters(), self.model.auxiliary, optim, settings.flow_lr, settings.flow_clip)

    @property
    def last_start(self) -> int:
        """The auxiliary losses are 0 during the first epoch of their ramp."""
        return self.task.epoch if self.consensus is not None and self.settings.flow_ramp else 0

    def forward(self, batch: Batch) -> Outcome:
        z = self.embed(batch)
        p = self.predict(z, batch)
        weight = self.weigh(p, batch)
        trusted, confidence, auxiliary_losses = weight > 0, None, {}
        if self.consensus is not None:
            outputs = self.consensus.outputs(z.labelled, z.weak[0])
            tau, agree, confidence = self.consensus.weigh(p, outputs)
            weight, trusted = weight * tau, trusted & agree
            grown = epoch_ramp(batch.step, self.epoch, self.settings.flow_ramp)
            losses = self.consensus.losses(outputs, batch.labels, self.settings.num_weight, p, tau)
            auxiliary_losses = {name: grown * loss for name, loss in losses.items()}
        now = Pass(batch, z, *self.classify(z), p, self.target(p, batch), weight)
        losses = self.losses(now) | self.extra_losses(now) | auxiliary_losses
        return Outcome(losses, {}, PseudoLabels(p.argmax(1), weight, trusted, p.amax(1), confidence))

    def unlabelled_views(self, batch: Batch) -> tuple[list[Tensor], list[Tensor]]:
        """Those called ``weak``, and all others, in their order."""
        named = list(zip(self.views.unlabelled, batch.unlabelled, strict=True))
        return [view for name, view in named if name == "weak"], [view for name, view in named if name != "weak"]

    def embed(self, batch: Batch) -> Features:
        """Features of all views, from one pass: batch normalisation sees them together.

        With passes ``shared`` the backward pass covers labelled and strong views only: weak ones enter no loss and
        would get a gradient only through the batch statistics. A method without strong views learns from its weak ones.
        """
        weak, strong = self.unlabelled_views(batch)
        shared = self.settings.passes == "shared" and bool(strong)
        learning = [batch.labelled[0], *strong]
        sizes = [len(view) for view in (*learning, *weak)]
        z = self.model.features(torch.cat([*learning, *weak]), sum(sizes[: len(learning)]) if shared else None)
        z_labelled, *others = z.split(sizes)
        z_strong, z_weak = others[: len(strong)], others[len(strong) :]
        if shared:
            z_weak = [z.detach() for z in z_weak]
        return Features(z_labelled, tuple(z_weak), tuple(z_strong or z_weak))

    @torch.no_grad()
    def predict(self, z: Features, batch: Batch) -> Tensor:
        """p_d (μB, K), the mean over the weak views, aligned where alignment is on."""
        p = self.weak_logits(z, batch).float().softmax(1)
        if (views := self.views.unlabelled.count("weak")) > 1:
            p = torch.stack(p.chunk(views)).mean(0)
        return p if self.alignment is None else self.alignment(p)

    def weak_logits(self, z: Features, batch: Batch) -> Tensor:
        """The logits of all weak views, one after the other, from which the pseudo-labels come."""
        logits: Tensor = self.model.head(torch.cat(z.weak))
        return logits

    def weigh(self, p: Tensor, batch: Batch) -> Tensor:
        """The weights (μB,) of the pseudo-labels before consensus; those above 0 are trusted."""
        return torch.ones_like(p[:, 0])

    def target(self, p: Tensor, batch: Batch) -> Tensor:
        """The targets (μB, K) of the strong views."""
        if self.settings.pseudo_label == "sharpened":
            return sharpen(p, self.settings.temperature)
        return targets(p, self.settings.pseudo_label == "onehot")

    def losses(self, now: Pass) -> dict[str, Tensor]:
        """L_x(θ_d) and L_u(θ_d)."""
        losses = [pseudo_loss(logits, now.target, now.weight) for logits in now.logits_strong]
        return {
            "labelled": labelled_loss(now.logits_labelled, now.batch.labels),
            "unlabelled": losses[0] if len(losses) == 1 else torch.stack(losses).mean(),
        }

    def classify(self, z: Features) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The head's logits of the labelled and of each strong view, from one pass over all features."""
        labelled, *strong = in_one_pass(self.model.head, [z.labelled, *z.strong])
        return labelled, tuple(strong)

    def extra_losses(self, now: Pass) -> dict[str, Tensor]:
        """Further losses by name, with their weights."""
        return {}
