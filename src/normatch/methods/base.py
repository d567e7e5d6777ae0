"""The contract of a method: views of one batch in, named losses and diagnostics out, all of them tensors.

A method's ``forward`` is captured as part of one CUDA graph: no ``.item()``, no host synchronisation, no shape that
depends on data, and no ground truth of unlabelled images. Methods that train strong views on pseudo-labels of weak ones
subclass the template in ``parts/weak_to_strong.py``; ``docs/internals.md`` says how others fit in.
"""

import abc
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from normatch.errors import UserError
from normatch.methods.parts.groups import Group, OptimConfig, sgd_groups
from normatch.nets.model import HeadSpec, Model
from normatch.registry import Registry

__all__ = ["Batch", "Embedding", "Method", "Outcome", "PseudoLabels", "Settings", "Task", "ViewsWanted", "methods"]


@dataclass(frozen=True)
class ViewsWanted:
    """The views that a method needs, in order, by the names in :data:`normatch.augment.VIEWS`.

    ``("weak", "strong", "strong")`` gives two strong views.
    """

    labelled: tuple[str, ...] = ("weak",)
    unlabelled: tuple[str, ...] = ()


@dataclass(frozen=True)
class Task:
    """All that a method may know about the problem besides the batches."""

    prior: tuple[float, ...]
    """Share of each class among the labels."""
    labelled: int
    """Number of labelled images."""
    unlabelled: int
    """Number of unlabelled images: the length of any state that a method keeps per unlabelled image."""
    epoch: int
    """Steps that count as an epoch (1024 in the paper)."""
    steps: int
    """Steps of the whole run."""

    @property
    def classes(self) -> int:
        return len(self.prior)


class Batch(NamedTuple):
    """The inputs of one step. Images are uint8 (N, C, H, W); feature vectors are float (N, D)."""

    labelled: tuple[Tensor, ...]
    """The labelled images, one tensor per view in ``ViewsWanted.labelled``."""
    labels: Tensor
    """(B,) their classes."""
    labelled_positions: Tensor
    """(B,) the numbers of these labelled images, 0 … Task.labelled − 1. Images occur twice if they are few."""
    unlabelled: tuple[Tensor, ...]
    """The unlabelled images, one tensor per view in ``ViewsWanted.unlabelled``."""
    positions: Tensor
    """(μB,) the numbers of these unlabelled images, 0 … Task.unlabelled − 1. If an epoch ends within a batch, an image
    may occur twice in it; more often if there are fewer images than fit into a batch."""
    step: Tensor
    """() number of steps done before this one, on the device."""
    teacher: Model
    """The running average of the model's weights, without gradients; in evaluation mode unless the method's
    ``teacher_trains`` is on."""
    teacher_heads: nn.ModuleDict
    """The running averages of the method's modules named in ``Method.averaged``."""


class PseudoLabels(NamedTuple):
    """The pseudo-labels of the unlabelled batch, for diagnostics that the engine computes (Figures 3 and 4)."""

    label: Tensor
    """(μB,) the class, int64."""
    weight: Tensor
    """(μB,) its weight in the loss; in NorMatch τ of eq. 3, unless settings change it."""
    trusted: Tensor
    """(μB,) bool: whether the method relies on it: in FixMatch because it reaches the threshold, in NorMatch by
    consensus."""
    confidence: Tensor
    """(μB,) max p_d."""
    auxiliary: Tensor | None
    """(μB,) max p_n; None without an auxiliary classifier."""


class Outcome(NamedTuple):
    """The result of one step. The sum of ``losses``, which include their weights, is minimised."""

    losses: dict[str, Tensor]
    metrics: dict[str, Tensor]
    """Further scalars () to record; the names must not be the engine's own, and must be the same at each step."""
    pseudo: PseudoLabels | None = None
    """None if the method has none, as Mean Teacher."""


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
    """The settings of a method; each method subclasses this."""

    def check(self) -> None:
        """Raise UserError if a setting is invalid or contradicts another."""

    def must_be_probability(self, *names: str) -> None:
        """Raise UserError if one of these settings is not from 0 to 1."""
        for name in names:
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"settings.{name} is {getattr(self, name)}: give a number from 0 to 1")

    def must_not_be_negative(self, *names: str) -> None:
        """Raise UserError if one of these settings is below 0."""
        for name in names:
            if not 0 <= getattr(self, name) < math.inf:
                raise UserError(f"settings.{name} is {getattr(self, name)}: give a number that is not negative")

    def must_be_positive(self, *names: str) -> None:
        """Raise UserError if one of these settings is 0 or below."""
        for name in names:
            if getattr(self, name) <= 0:
                raise UserError(f"settings.{name} is {getattr(self, name)}: give a positive number")


class Method(nn.Module, abc.ABC):
    """Base of all methods: owns the model that is trained and whatever state the method keeps as buffers."""

    summary: ClassVar[str] = ""
    """One line for ``normatch list methods``."""
    paper: ClassVar[str] = ""
    """Authors, venue and, in four digits at the end, the year: ``Sohn et al., NeurIPS 2020``; empty for none."""
    Settings: ClassVar[type[Settings]] = Settings
    views: ViewsWanted = ViewsWanted()
    """The views it needs. The class attribute must say whether the method needs unlabelled views, because the engine
    reads it before it builds the method. If settings change the kinds of views, ``__init__`` may set ``self.views``."""
    capturable: ClassVar[bool] = True
    """Whether ``forward`` can be compiled and captured; set False if it must look at values, and it runs eagerly."""
    averaged: ClassVar[tuple[str, ...]] = ()
    """Names of submodules whose weights are averaged as the model's are: ``batch.teacher_heads`` has the averages."""
    teacher_trains: ClassVar[bool] = False
    """Whether ``batch.teacher`` is in training mode: batch norm then uses the statistics of the batch."""

    epoch: Tensor
    """() ``task.epoch`` and, below, ``task.steps``: as numbers they would be part of the compiled code, which a run of
    another length could not use."""
    steps: Tensor

    def __init__(self, model: Model, task: Task, settings: Any) -> None:
        super().__init__()
        self.model = model
        self.task = task
        self.settings = settings
        self.register_buffer("epoch", torch.tensor(task.epoch), persistent=False)
        self.register_buffer("steps", torch.tensor(task.steps), persistent=False)

    @classmethod
    def heads(cls, settings: Any) -> tuple[HeadSpec, tuple[HeadSpec, ...]]:
        """The classifiers on the backbone's features: the one that predicts, and auxiliary ones."""
        return HeadSpec(), ()

    @abc.abstractmethod
    def forward(self, batch: Batch) -> Outcome:
        """The losses of one batch, and the pseudo-labels of its unlabelled images; on a GPU, under autocast."""

    def groups(self, optim: OptimConfig) -> list[Group]:
        """Which optimiser updates which parameters; by default SGD for all, without decay of biases and norms."""
        return sgd_groups(self.parameters(), optim)

    @property
    def last_start(self) -> int:
        """The step from which all losses count; 0 unless one has no weight at first."""
        return 0

    def begin_epoch(self, epoch: int, embed: Callable[[], Embedding]) -> None:
        """Called on the host before each epoch, outside the captured step; by default it does nothing.

        ``embed()`` returns the features of all images, from which, for example, deep label propagation computes its
        labels and writes them into a buffer. torch's generators are seeded before each call; draw from no others.
        """


methods: Registry[type[Method]] = Registry("method", package="normatch.methods")
