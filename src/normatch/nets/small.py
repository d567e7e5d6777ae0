"""A small wide convolutional network for tiny images, fast enough to train on a laptop's CPU."""

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu, max_pool2d

from normatch.nets.backbone import Backbone, BackboneSpec, register
from normatch.nets.partial import Parts, each, join, normalise, parts_of

__all__ = ["SmallWide"]

SLOPE = 0.1


class SmallWide(Backbone):
    """Four 3×3 convolutions (32, pool, 64, 64, pool, 128 channels), each with batch norm and leaky ReLU, then the mean.

    It is fast because of the pool right after the first convolution: the two convolutions of 64 channels run on a
    quarter of the pixels.
    """

    def __init__(self, channels: int, norm_momentum: float) -> None:
        super().__init__(features=128)
        self.stem = nn.Conv2d(channels, 32, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(32, momentum=norm_momentum)
        self.stage1 = _Layer(32, 64, norm_momentum)
        self.stage2 = _Layer(64, 64, norm_momentum)
        self.stage3 = _Layer(64, 128, norm_momentum)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, a=SLOPE, mode="fan_out", nonlinearity="leaky_relu")

    def forward(self, x: Tensor, learning: int | None = None) -> Tensor:
        """Images (N, C, H, W) to features (N, 128); only the first ``learning`` are back-propagated."""
        parts = normalise(self.norm, each(self._stem, parts_of(x, learning)))
        parts = each(_activate, self.stage1(each(_pool_and_activate, parts)))
        parts = each(_pool_and_activate, self.stage2(parts))
        return join(each(_activate, self.stage3(parts))).mean(dim=(2, 3))

    def _stem(self, x: Tensor) -> Tensor:
        # With channels last a CPU takes 60 to 70% of the time. It is set on the activations, since safetensors needs
        # contiguous weights; and after the stem, since torch cannot tell the two layouts apart for one channel.
        y: Tensor = self.stem(x).contiguous(memory_format=torch.channels_last)
        return y


class _Layer(nn.Module):
    """A convolution and its batch norm."""

    def __init__(self, inputs: int, outputs: int, norm_momentum: float) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(outputs, momentum=norm_momentum)

    def forward(self, parts: Parts) -> Parts:
        return normalise(self.norm, each(self.conv, parts))


def _pool_and_activate(x: Tensor) -> Tensor:
    return _activate(max_pool2d(x, 2))


def _activate(x: Tensor) -> Tensor:
    # In place, since on a CPU new memory costs more than the arithmetic; after the pool, with which it commutes.
    return leaky_relu(x, SLOPE, inplace=True)


register(
    BackboneSpec(
        name="small-wide",
        summary="four convolutions for small images, 128 features; quick on a processor",
        sides=(8, 64),
        build=lambda shape, momentum: SmallWide(shape[0], momentum),
        partial=True,
        muon=True,
    )
)
