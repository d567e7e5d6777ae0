"""A model over many inputs, batch by batch."""

import torch
from torch import Tensor

from normatch.model import Model

__all__ = ["features", "logits"]


@torch.no_grad()
def logits(model: Model, inputs: Tensor, batch: int = 1000) -> Tensor:
    """Class logits (N, K) in float32 of inputs (N, …), computed on the model's device, returned there."""
    device = model.normalise.mean.device
    parts = [model(part.to(device, non_blocking=True)).float() for part in inputs.split(batch)]
    return torch.cat(parts) if parts else torch.zeros(0, len(model.spec.classes), device=device)


@torch.no_grad()
def features(model: Model, inputs: Tensor, batch: int = 1000) -> Tensor:
    """The backbone's features (N, D) in float32 of inputs (N, …)."""
    device = model.normalise.mean.device
    return torch.cat([model.features(part.to(device, non_blocking=True)).float() for part in inputs.split(batch)])
