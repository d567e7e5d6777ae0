"""Batch norm: the statistics of a batch, also of one whose samples are shared by several processes."""

from typing import Any, Protocol

import torch
from torch import Tensor, nn

from normatch.errors import UserError

__all__ = ["Moments", "Share", "SyncedBatchNorm", "moments", "synchronise", "track"]

Moments = tuple[Tensor, Tensor]
"""The variance and mean of each channel."""


class Share(Protocol):
    """A process's share of every batch: of ``size`` processes, each has every size-th sample."""

    @property
    def size(self) -> int: ...

    def take(self, x: Tensor) -> Tensor:
        """(N / size, …) its samples of a batch (N, …)."""

    def gather(self, z: Tensor) -> Tensor:
        """(N, D) the features of all samples, in their order, from its own (N / size, D)."""

    def each(self, x: Tensor) -> Tensor:
        """(size, …) the tensors ``x`` of all processes."""


class SyncedBatchNorm(nn.modules.batchnorm._BatchNorm):
    """Batch norm by the statistics of the samples of all processes, forward and backward.

    torch's own is for GPUs only.
    """

    share: Share

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return super().forward(x)
        y, (variance, mean) = self.normalised(x, self.weight, self.bias, self.eps)
        with torch.no_grad():
            track(self, mean, variance, self.share.size * x.numel() // x.shape[1])
        return y

    def normalised(self, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Moments]:
        """``x`` normalised, scaled and shifted, and the moments of all samples."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        variance, mean = self.merged(torch.var_mean(wide, _but_channels(x), correction=0))
        shape = (-1, *[1] * (x.ndim - 2))
        y = (wide - mean.view(shape)) * (weight * (variance + eps).rsqrt()).view(shape) + bias.view(shape)
        return y.to(x.dtype), (variance, mean)

    def merged(self, own: Moments) -> Moments:
        """The moments of all samples, of which each process has equally many."""
        variances, means = self.share.each(torch.stack(own)).unbind(1)
        mean = means.mean(0)
        return variances.mean(0) + (means - mean).square().mean(0), mean


class _Synced1d(SyncedBatchNorm, nn.BatchNorm1d):
    pass


class _Synced2d(SyncedBatchNorm, nn.BatchNorm2d):
    pass


SYNCED: dict[type[nn.Module], type[SyncedBatchNorm]] = {nn.BatchNorm1d: _Synced1d, nn.BatchNorm2d: _Synced2d}


def synchronise(network: nn.Module, share: Share) -> None:
    """Let all batch norms of the network use the statistics of all processes' samples."""
    for name, module in network.named_modules():
        if kind := SYNCED.get(type(module)):
            module.__class__ = kind  # as torch's parametrisations do: the tensors, and references to them, stay
            module.share = share
        elif isinstance(module, nn.modules.batchnorm._BatchNorm):
            raise UserError(
                f"{name} of the backbone is a {type(module).__name__}, of which several processes cannot share a "
                "batch: choose another backbone, or train with one process"
            )


def moments(x: Tensor, norm: nn.Module | None = None) -> Moments:
    """The variance and mean of each channel, at least in float32, without gradients; if ``norm`` is synchronised, of
    the samples of all processes."""
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    if x.device.type == "cpu":
        # The same as var_mean, which takes 2 to 80 times as long on a CPU; the running averages are not wanted here.
        unused = x.new_zeros(x.shape[1])
        mean, variance = torch.batch_norm_update_stats(x, unused, unused, 0.0)
    else:
        variance, mean = torch.var_mean(x, _but_channels(x), correction=0)
    return norm.merged((variance, mean)) if isinstance(norm, SyncedBatchNorm) else (variance, mean)


def track(norm: Any, mean: Tensor, variance: Tensor, count: int) -> None:
    """Update the running statistics as torch does, with the unbiased variance of ``count`` numbers a channel."""
    norm.running_mean.lerp_(mean, norm.momentum)
    norm.running_var.lerp_(variance * (count / (count - 1)), norm.momentum)
    norm.num_batches_tracked.add_(1)


def _but_channels(x: Tensor) -> list[int]:
    return [0, *range(2, x.ndim)]
