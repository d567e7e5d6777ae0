"""Weights that grow during a run: by epochs, or over a share of its steps."""

import torch
from torch import Tensor

__all__ = ["epoch_ramp", "linear_ramp", "sigmoid_ramp"]


def epoch_ramp(step: Tensor, epoch: Tensor | int, epochs: int) -> Tensor:
    """The number of epochs (of ``epoch`` steps) so far / ``epochs``, at most 1; 1 if ``epochs`` is 0."""
    if epochs == 0:
        return torch.ones((), device=step.device)
    return (step // epoch / float(epochs)).clamp(max=1.0)


def linear_ramp(step: Tensor, steps: Tensor, share: float, start: float = 0.0) -> Tensor:
    """From 0 to 1 between the shares ``start`` and ``share`` of all ``steps``; 1 from the beginning if both are 0."""
    if share == start == 0:
        return torch.ones((), device=step.device)
    return ((step - start * steps) / ((share - start) * steps).clamp_min(1e-6)).clamp(0.0, 1.0)


def sigmoid_ramp(step: Tensor, steps: Tensor, share: float) -> Tensor:
    """exp(−5 (1 − t)²) with t from 0 to 1 over the first ``share`` of all ``steps`` (Laine and Aila, ICLR 2017)."""
    return torch.exp(-5 * (1 - linear_ramp(step, steps, share)).square())
