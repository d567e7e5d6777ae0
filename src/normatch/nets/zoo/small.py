"""A small wide convolutional network for tiny images, quick enough to train on a laptop's processor."""

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu, max_pool2d

from normatch.nets.backbone import Backbone, BackboneSpec, ImageShapes, register

__all__ = ["SmallWide"]

SLOPE = 0.1


class SmallWide(Backbone):
    """Four 3×3 convolutions (32, pool, 64, 64, pool, 128 channels), each with batch norm and leaky ReLU, then the mean.

    The pool right after the first convolution is what makes it quick: the two products of 64 channels run on a quarter
    of the pixels.

    Arguments:
        channels: The channels of the images.
        norm_momentum: The batch-norm momentum.
    """

    def __init__(self, channels: int, norm_momentum: float = 0.1) -> None:
        super().__init__(features=128)
        self.stem = nn.Conv2d(channels, 32, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(32, momentum=norm_momentum)
        self.stage1 = _Layer(32, 64, norm_momentum)
        self.stage2 = _Layer(64, 64, norm_momentum)
        self.stage3 = _Layer(64, 128, norm_momentum)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, a=SLOPE, mode="fan_out", nonlinearity="leaky_relu")

    def forward(self, x: Tensor) -> Tensor:
        """Images (N, C, H, W) to features (N, 128)."""
        # With channels last a CPU takes six to seven tenths of the time. It is asked of the activations, since
        # safetensors wants contiguous weights; and behind the stem, since for one channel the two layouts look alike.
        x = self.stem(x).contiguous(memory_format=torch.channels_last)
        x = max_pool2d(leaky_relu(self.norm(x), SLOPE), 2)
        x = max_pool2d(self.stage2(self.stage1(x)), 2)
        features: Tensor = self.stage3(x).mean(dim=(2, 3))
        return features


class _Layer(nn.Module):
    def __init__(self, inputs: int, outputs: int, norm_momentum: float) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(outputs, momentum=norm_momentum)

    def forward(self, x: Tensor) -> Tensor:
        return leaky_relu(self.norm(self.conv(x)), SLOPE)


register(
    BackboneSpec(
        name="small-wide",
        summary="four convolutions for small images, 128 features; quick on a processor",
        shapes=ImageShapes(8, 64),
        build=lambda shape, momentum: SmallWide(shape[0], momentum),
    )
)
