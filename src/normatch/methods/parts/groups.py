"""Parameter groups: which optimiser rule updates which parameters."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from torch import nn

__all__ = ["Group", "OptimConfig", "apart", "sgd_and_adamw", "sgd_groups"]


@dataclass(frozen=True)
class OptimConfig:
    """The backbone's optimiser: SGD with Nesterov momentum and a cosine decay (Section 4.1)."""

    lr: float = 0.03
    """Learning rate of the first step."""
    backbone_lr: float | None = None
    """That of the backbone, if it has one of its own, with AdamW: of a fine-tuned one the pretrained part."""
    momentum: float = 0.9
    """Nesterov momentum."""
    weight_decay: float = 5e-4
    """Decay of weights; biases and normalisation layers have none."""
    cosine: float = 7 / 16
    """Final angle of the cosine schedule of all learning rates, as a fraction of π: at 7/16 they end at a fifth of the
    start, at ½ at 0."""
    muon: float = 0.0
    """Learning rate of Muon for the convolutions: the share of their length by which they move in the first step. With
    0 SGD trains them, as in the paper. For runs of minutes."""


@dataclass(frozen=True)
class Group:
    """Parameters that one optimiser rule updates."""

    params: list[nn.Parameter]
    rule: Literal["sgd", "muon", "adamw"]
    lr: float
    weight_decay: float
    clip: float | None = None
    """Largest norm of the group's gradient; None for no clipping."""
    accumulate: bool = False
    """Never zero the gradients (as the published code does with its mixture, by mistake)."""


def sgd_groups(params: Iterable[nn.Parameter], optim: OptimConfig) -> list[Group]:
    """SGD for all parameters that require gradients, with weight decay for all but vectors; Muon for convolutions if it
    has a learning rate."""
    convolutions: list[nn.Parameter] = []
    matrices: list[nn.Parameter] = []
    vectors: list[nn.Parameter] = []
    for p in params:
        if p.requires_grad:
            # Muon keeps the length of weights, so those that start at 0 would stay there.
            by_muon = optim.muon > 0 and p.ndim == 4 and bool(p.any())
            (convolutions if by_muon else matrices if p.ndim > 1 else vectors).append(p)
    groups = [
        Group(matrices, "sgd", optim.lr, optim.weight_decay),
        Group(vectors, "sgd", optim.lr, 0.0),
        Group(convolutions, "muon", optim.muon, 0.0),
    ]
    return [group for group in groups if group.params]


def sgd_and_adamw(
    params: Iterable[nn.Parameter], modules: Iterable[nn.Module], optim: OptimConfig, lr: float, clip: float
) -> list[Group]:
    """AdamW with gradients of norm ``clip`` at most for the parameters of the ``modules``, SGD or Muon for others.

    SGD at the backbone's learning rate makes a flow diverge.
    """
    apart = [p for module in modules for p in module.parameters() if p.requires_grad]
    taken = {id(p) for p in apart}
    others = sgd_groups((p for p in params if id(p) not in taken), optim)
    return [*others, Group(apart, "adamw", lr, optim.weight_decay, clip=clip)] if apart else others


def apart(groups: Iterable[Group], params: Iterable[nn.Parameter], optim: OptimConfig) -> list[Group]:
    """The groups, of which ``params`` are in groups of their own, with AdamW and the backbone's learning rate."""
    if optim.backbone_lr is None:
        return list(groups)
    own, lr = {id(p) for p in params}, optim.backbone_lr
    made: list[Group] = []
    for group in groups:
        inside, others = ([p for p in group.params if (id(p) in own) == which] for which in (True, False))
        made += [replace(group, params=others), replace(group, params=inside, rule="adamw", lr=lr)]
    return [group for group in made if group.params]
