"""NorMatch in a fresh network that is told at first what an earlier run's network is surest of, as fast.py tried it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from normatch.data import Dataset
from normatch.device import device_of
from normatch.methods import Batch, Embedding, Outcome, Task, methods
from normatch.methods.normatch import NorMatch, NorMatchSettings
from normatch.nets.inference import logits
from normatch.nets.model import Model
from normatch.nets.weights import load_model
from normatch.training import Run

__all__ = ["Predecessor", "Successor", "add_methods", "surest"]

SHARE = 0.5
"""Share of the predecessor's pseudo-labels that are told."""


def surest(p: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """The likeliest classes (N,), and which of them are kept: the surest of each class, as many of one as of another
    and ``share`` of all, unless a class has fewer."""
    confidence, label = p.max(1)
    kept = torch.zeros_like(label, dtype=torch.bool)
    for k in range(p.shape[1]):
        of_class = (label == k).nonzero()[:, 0]
        kept[of_class[confidence[of_class].argsort(descending=True)][: round(share * len(p) / p.shape[1])]] = True
    return label, kept


class Predecessor:
    """A finished run, asked for its probabilities of training images; how many are right is noted as ``facts``."""

    def __init__(self, folder: Path, images: Dataset) -> None:
        self.folder, self.images = folder, images
        self.facts: dict[str, Any] = {"told by": folder.name}

    def __call__(self) -> Tensor:
        """(N, K), averaged over the images and, where the run flipped them too, their mirror images."""
        model = load_model(self.folder).to(device_of("auto"))
        x = torch.from_numpy(np.asarray(self.images.inputs)).permute(0, 3, 1, 2)
        views = [x, x.flip(3)] if Run.open(self.folder).config.augment.flip else [x]
        p = torch.stack([logits(model, view).softmax(1) for view in views]).mean(0).cpu()
        label, kept = surest(p, SHARE)
        right = label == torch.from_numpy(self.images.labels)
        self.facts["told, right, and of the surest"] = [one.double().mean().item() for one in (right, right[kept])]
        return p


class Successor(NorMatch):
    """In the first ``until`` of the run, all but its first epoch, what another network is surest of are pseudo-labels
    of full weight; the others, and all afterwards, are its own."""

    before: ClassVar[Callable[[], Tensor] | None] = None
    """Returns the other network's probabilities (N, K) of the unlabelled images; called after the first epoch."""
    until: ClassVar[float] = 0.4

    told: Tensor
    sure: Tensor

    def __init__(self, model: Model, task: Task, settings: NorMatchSettings) -> None:
        super().__init__(model, task, settings)
        self.register_buffer("told", torch.zeros(task.unlabelled, dtype=torch.long))
        self.register_buffer("sure", torch.zeros(task.unlabelled, dtype=torch.bool))

    def begin_epoch(self, epoch: int, embed: Callable[[], Embedding]) -> None:
        if epoch == 1 and Successor.before is not None:
            told, sure = surest(Successor.before(), SHARE)
            self.told.copy_(told)
            self.sure.copy_(sure)

    def forward(self, batch: Batch) -> Outcome:
        self._positions = batch.positions
        outcome = super().forward(batch)
        del self._positions
        return outcome

    def _decide(self, p: Tensor, tau: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
        target, weight = super()._decide(p, tau, step)
        told = self.sure[self._positions] & (step < round(self.until * self.task.steps))
        names = one_hot(self.told[self._positions], p.shape[1]).to(p.dtype)
        return torch.where(told[:, None], names, target), torch.where(told, torch.ones_like(weight), weight)


class Early(Successor):
    """It goes its own way sooner."""

    until = 0.15


def add_methods() -> None:
    methods.add("normatch-successor", Successor)
    methods.add("normatch-successor-early", Early)
