"""A pass through a network in which only the first samples of a batch learn.

A network that is written for parts of a batch runs both ways. One part is the ordinary pass. Of two, the first is
back-propagated and the second is not, which saves its share of the backward pass; both are normalised by the statistics
of all samples.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm

from normatch.nets.norm import SyncedBatchNorm, moments, track

__all__ = ["Parts", "each", "join", "normalise", "parts_of"]

Parts = tuple[Tensor, ...]
"""The samples of a batch in order: all of them, or those that learn and those that do not."""


def parts_of(x: Tensor, learning: int | None) -> Parts:
    """The first ``learning`` samples and the others, or one part if all learn."""
    return (x,) if learning is None or learning == len(x) else (x[:learning], x[learning:].detach())


def join(parts: Parts) -> Tensor:
    return torch.cat(parts) if len(parts) > 1 else parts[0]


def each(layer: Callable[[Tensor], Tensor], parts: Parts) -> Parts:
    """The layer's outputs; of the second part without gradients."""
    learning, *others = parts
    if not others:  # torch.export cannot store a block without gradients that is empty
        return (layer(learning),)
    with torch.no_grad():
        rest = [layer(part) for part in others]
    return layer(learning), *rest


def normalise(norm: nn.BatchNorm2d, parts: Parts) -> Parts:
    """Batch norm with the statistics of all samples, of which only the first part gets a gradient.

    In the forward pass this is batch norm. For the backward pass, the learning samples are normalised by their own
    statistics, then shifted and scaled by constants to those of all samples. If the statistics were constants instead,
    the gradient would not be orthogonal to scaling x, and weights would drift (benchmarks/NOTES.md).
    """
    if len(parts) == 1 or not norm.training:
        return each(norm, parts)
    learning, others = parts
    with torch.no_grad():
        (variance, mean), (variance_2, mean_2) = moments(learning, norm), moments(others, norm)
        samples = len(learning) + len(others)
        share = len(learning) / samples
        between = share * (1 - share) * (mean - mean_2).square()
        variance_all = share * variance + (1 - share) * variance_2 + between
        mean_all = share * mean + (1 - share) * mean_2
        processes = norm.share.size if isinstance(norm, SyncedBatchNorm) else 1
        track(norm, mean_all, variance_all, processes * samples * math.prod(others.shape[2:]))
        rest = batch_norm(others, mean_all, variance_all, norm.weight, norm.bias, eps=norm.eps)
        deviation = (variance_all + norm.eps).sqrt()
        shift, scale = (mean - mean_all) / deviation, variance.sqrt() / deviation
    weight, bias = norm.weight * scale, norm.bias + norm.weight * shift
    if isinstance(norm, SyncedBatchNorm):
        return norm.normalised(learning, weight, bias, 1e-12)[0], rest
    return batch_norm(learning, None, None, weight, bias, training=True, eps=1e-12), rest
