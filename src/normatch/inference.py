"""A model over many inputs, batch by batch."""

from collections.abc import Iterable
from typing import Protocol

import torch
from torch import Tensor

from normatch.model import Model

__all__ = ["Inputs", "features", "logits"]


class Inputs(Protocol):
    """What can be split into batches: a tensor (N, …), or inputs that are read from host memory as they are needed."""

    def split(self, size: int, /) -> Iterable[Tensor]: ...


@torch.no_grad()
def logits(model: Model, inputs: Inputs, batch: int = 500) -> Tensor:
    """Class logits (N, K) in float32 of inputs (N, …), computed on the model's device, returned there."""
    parts = [model(part).float() for part in _moved(inputs, batch, model)]
    return torch.cat([model.normalise.mean.new_zeros(0, len(model.spec.classes)), *parts])


@torch.no_grad()
def features(model: Model, inputs: Inputs, batch: int = 500) -> Tensor:
    """The backbone's features (N, D) in float32 of inputs (N, …)."""
    parts = [model.features(part).float() for part in _moved(inputs, batch, model)]
    return torch.cat([model.normalise.mean.new_zeros(0, model.backbone.features), *parts])


def _moved(inputs: Inputs, batch: int, model: Model) -> Iterable[Tensor]:
    """Batches on the model's device, each in one memory layout wherever it comes from: the layout decides the bits."""
    device = model.normalise.mean.device
    return (part.to(device, non_blocking=True).contiguous() for part in inputs.split(batch))
