"""The contract of a method: views of one batch in, named losses and diagnostics out, all of them tensors.

A method's ``forward`` is captured as part of one CUDA graph: no ``.item()``, no host synchronisation, no shape that
depends on data, and no ground truth of unlabelled images. ``docs/architecture.md`` says how methods that are unlike
FixMatch (teachers, queues, mixed images, labels propagated once an epoch) fit in.
"""

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from torch import Tensor, nn

from normatch.methods.parts.groups import Group, OptimConfig, sgd_groups
from normatch.model import HeadSpec, Model
from normatch.registry import Registry

__all__ = ["Batch", "Embedding", "Method", "Outcome", "PseudoLabels", "Settings", "Task", "ViewsWanted", "methods"]


@dataclass(frozen=True)
class ViewsWanted:
    """Kinds of view that a method asks for, in order: ``("weak", "strong", "strong")`` gives two strong views."""

    labelled: tuple[str, ...] = ("weak",)
    unlabelled: tuple[str, ...] = ()


@dataclass(frozen=True)
class Task:
    """All that a method may know of the problem besides the batches."""

    classes: int
    labelled: int
    """How many labelled images there are."""
    unlabelled: int
    """How many unlabelled images there are: the length of a state that a method keeps for each of them."""
    epoch: int
    """Steps that count as an epoch (1024 in the paper)."""
    steps: int
    """Steps of the whole run."""


class Batch(NamedTuple):
    """What one step sees. Images are uint8 (N, C, H, W), or float (N, D) for feature vectors."""

    labelled: tuple[Tensor, ...]
    """The labelled images, one tensor for each view asked for."""
    labels: Tensor
    """(B,) their classes."""
    unlabelled: tuple[Tensor, ...]
    """The unlabelled images, one tensor for each view asked for."""
    positions: Tensor
    """(μB,) which of the unlabelled images these are, 0 … Task.unlabelled − 1. Where one epoch ends and the next begins
    within a batch, an image may be there twice; more often where there are fewer images than a batch has."""
    step: Tensor
    """() steps done before this one, on the device."""
    teacher: Model
    """The running average of the model's weights, in evaluation mode, without gradients."""


class PseudoLabels(NamedTuple):
    """What a method believes of the unlabelled batch, for the diagnostics computed beside it (Figures 3 and 4)."""

    label: Tensor
    """(μB,) the class."""
    weight: Tensor
    """(μB,) its weight in the loss, τ of eq. 3."""
    trusted: Tensor
    """(μB,) bool: fully trusted (consensus), or above the threshold."""
    confidence: Tensor
    """(μB,) max p_d."""
    auxiliary: Tensor | None
    """(μB,) max p_n, where there is an auxiliary classifier."""


class Outcome(NamedTuple):
    """What one step found. The loss that is minimised is the sum of ``losses``, weights already applied."""

    losses: dict[str, Tensor]
    metrics: dict[str, Tensor]
    """Numbers () by names that no record has already; the same ones at each step."""
    pseudo: PseudoLabels | None = None


class Embedding(NamedTuple):
    """The teacher's features of all training images, without augmentation."""

    labelled: Tensor
    """(n, D), in the order of the labelled set."""
    labels: Tensor
    """(n,) their classes."""
    unlabelled: Tensor
    """(Task.unlabelled, D), addressed by ``Batch.positions``."""


@dataclass(frozen=True)
class Settings:
    """The choices of one method; each method's own are a subclass."""

    def check(self) -> None:
        """Raise UserError where two choices contradict each other."""


class Method(nn.Module, abc.ABC):
    """Base of all methods: owns the model that is trained and whatever state the method keeps as buffers."""

    summary: ClassVar[str] = ""
    """One line for ``normatch list methods``."""
    Settings: ClassVar[type[Settings]] = Settings
    views: ClassVar[ViewsWanted] = ViewsWanted()
    capturable: ClassVar[bool] = True
    """Whether ``forward`` can be compiled and captured; one that must look at values says no and runs eagerly."""

    def __init__(self, model: Model, task: Task, settings: Any) -> None:
        super().__init__()
        self.model = model
        self.task = task
        self.settings = settings

    @classmethod
    def heads(cls, settings: Any) -> tuple[HeadSpec, tuple[HeadSpec, ...]]:
        """The classifiers on the backbone's features: the one that predicts, and auxiliary ones."""
        return HeadSpec(), ()

    @abc.abstractmethod
    def forward(self, batch: Batch) -> Outcome:
        """The losses of one batch, and what the method believes of its unlabelled images."""

    def groups(self, optim: OptimConfig) -> list[Group]:
        """Who updates which parameter; by default SGD for all, without decay on vectors (biases, normalisation)."""
        return sgd_groups(self.parameters(), optim)

    def begin_epoch(self, epoch: int, embed: Callable[[], Embedding]) -> None:
        """Called on the host before each epoch, outside the captured step; by default it does nothing.

        ``embed()`` gives the features of all images: deep label propagation writes its labels into a buffer here.
        """


methods: Registry[type[Method]] = Registry("method", package="normatch.methods")
