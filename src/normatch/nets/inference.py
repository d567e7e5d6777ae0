"""Run a model over many inputs, batch by batch."""

import math
from collections.abc import Iterable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from normatch.nets.model import Model

__all__ = ["Splittable", "batch_for", "contiguous", "features", "logits"]

MOST, PIXELS = 500, 2**20
"""The most inputs and the most pixels that go through a network at once."""


class Splittable(Protocol):
    """Inputs that can be split into batches: a tensor (N, …), or inputs read from host memory as needed."""

    def split(self, size: int, /) -> Iterable[Tensor]: ...


def contiguous(x: Tensor) -> Tensor:
    """``x`` in the layout that its shape describes, with the strides of that layout.

    To torch, images of one channel are contiguous whether their channels come first or last, but it takes the strides
    for which layout they have, and chooses convolutions by it. Flattened and put in shape again, they have one answer.
    """
    return x.contiguous().flatten().view(x.shape)


def batch_for(shape: Sequence[int], most: int = MOST) -> int:
    """How many inputs of this shape go through a network at once: ``most``, or fewer if they are large pictures, whose
    activations would take gigabytes.

    >>> batch_for((3, 32, 32)), batch_for((3, 224, 224)), batch_for((512,))
    (500, 20, 500)
    """
    return max(1, min(most, PIXELS // math.prod(shape[1:])))


@torch.no_grad()
def logits(model: Model, inputs: Splittable) -> Tensor:
    """Class logits (N, K) in float32 of inputs (N, …), computed and returned on the model's device."""
    parts = [model(part).float() for part in _batches_on_device(inputs, model)]
    return torch.cat([model.normalise.mean.new_zeros(0, len(model.spec.classes)), *parts])


@torch.no_grad()
def features(model: Model, inputs: Splittable) -> Tensor:
    """The backbone's features (N, D) in float32 of inputs (N, …)."""
    parts = [model.features(part).float() for part in _batches_on_device(inputs, model)]
    return torch.cat([model.normalise.mean.new_zeros(0, model.backbone.features), *parts])


def _batches_on_device(inputs: Splittable, model: Model) -> Iterable[Tensor]:
    """Batches on the model's device, always contiguous: the memory layout affects results in the last bits."""
    device = model.normalise.mean.device
    return (contiguous(part.to(device, non_blocking=True)) for part in inputs.split(batch_for(model.spec.shape)))
