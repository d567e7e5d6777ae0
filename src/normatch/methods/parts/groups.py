"""Who updates which parameter: groups of parameters, each with its optimiser rule."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from torch import nn

__all__ = ["Group", "OptimConfig", "sgd_groups"]


@dataclass(frozen=True)
class OptimConfig:
    """The backbone's optimiser: SGD with Nesterov momentum and a cosine decay (Section 4.1)."""

    lr: float = 0.03
    """Learning rate of the first step."""
    momentum: float = 0.9
    """Nesterov momentum."""
    weight_decay: float = 5e-4
    """Decay of weights; biases and normalisation layers have none."""
    cosine: float = 7 / 16
    """How far the cosine of all learning rates goes, in parts of π: 7/16 ends at a fifth of the start, ½ at nothing."""


@dataclass(frozen=True)
class Group:
    """Parameters that one optimiser rule updates."""

    params: list[nn.Parameter]
    rule: Literal["sgd", "adamw"]
    lr: float
    weight_decay: float
    clip: float | None = None
    """Largest norm of the group's gradient; None leaves it alone."""
    accumulate: bool = False
    """Never zero the gradients (what the published code does to its mixture, by mistake)."""


def sgd_groups(params: Iterable[nn.Parameter], optim: OptimConfig) -> list[Group]:
    trained = [p for p in params if p.requires_grad]
    matrices = [p for p in trained if p.ndim > 1]
    vectors = [p for p in trained if p.ndim <= 1]
    groups = [Group(matrices, "sgd", optim.lr, optim.weight_decay), Group(vectors, "sgd", optim.lr, 0.0)]
    return [group for group in groups if group.params]
