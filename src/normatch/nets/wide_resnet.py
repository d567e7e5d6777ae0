"""Wide residual networks as FixMatch uses them: the paper's backbone for CIFAR-10 (28-2) and CIFAR-100 (28-8)."""

import math
from functools import partial
from importlib.util import find_spec

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from normatch.nets.backbone import Backbone, BackboneSpec, register
from normatch.nets.partial import Parts, each, join, normalise, parts_of

if find_spec("triton") is not None:
    from normatch.kernels.wide_resnet import Layout, wide_resnet
else:  # as on a machine without a GPU
    wide_resnet = None  # type: ignore[assignment]

__all__ = ["WideResNet"]

# FixMatch's values. The small momentum keeps batches of strongly augmented images from swinging the running statistics.
SLOPE = 0.1
NORM_MOMENTUM = 0.001


class WideResNet(Backbone):
    r"""A pre-activation residual network of three groups with 16k, 32k and 64k channels (arXiv:1605.07146).

    .. math:: x_{i+1} = S(x_i) + W_2 * a(B_2(W_1 * a(B_1(x_i))))

    with :math:`B` batch norm, :math:`a` a leaky ReLU of slope 0.1, and :math:`S` the identity, or a 1×1 convolution
    where the number of channels changes. As in FixMatch (arXiv:2001.07685), the shortcut of the very first block starts
    from :math:`a(B_1(x))`; the first blocks of the other groups halve the sides.

    The network of NorMatch's published code is the same but for these halving blocks, where :math:`W_1` takes the raw
    :math:`x_i`: their :math:`B_1` goes unused, and is left out here.

    Arguments:
        depth: The number of convolutions on the longest path, 6n + 4 for n blocks a group.
        width: The factor k.
        published: Whether to build the network of NorMatch's published code.
    """

    def __init__(
        self,
        channels: int,
        depth: int = 28,
        width: int = 2,
        norm_momentum: float = NORM_MOMENTUM,
        published: bool = False,
    ) -> None:
        super().__init__(features=64 * width)
        self.published = published
        self.stem = nn.Conv2d(channels, 16, 3, padding=1, bias=False)
        stages: list[nn.Module] = []
        inputs = 16
        for group in range(3):
            outputs = 16 * width * 2**group
            for block in range((depth - 4) // 6):
                first, halves = block == group == 0, block == 0 and group > 0
                stages.append(_Block(inputs, outputs, halves, first, halves and published, norm_momentum))
                inputs = outputs
        self.blocks = nn.Sequential(*stages)
        self.norm = nn.BatchNorm2d(inputs, momentum=norm_momentum)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                # FixMatch's initialisation: the gain √2 of a plain ReLU, ignoring the small slope.
                nn.init.normal_(module.weight, std=math.sqrt(2 / (module.out_channels * module.kernel_size[0] ** 2)))

    def forward(self, x: Tensor, learning: int | None = None) -> Tensor:
        """Images (N, C, H, W) to features (N, 64k); only the first ``learning`` are back-propagated."""
        if self._fusible(x):
            return wide_resnet(x, *self._parts(), torch.bfloat16, SLOPE, learning)
        parts = each(self.stem, parts_of(x, learning))
        for block in self.blocks:
            parts = block(parts)
        return join(_activate(self.norm, parts)).mean(dim=(2, 3))

    def _fusible(self, x: Tensor) -> bool:
        """Whether the hand-written kernels apply: to training passes in bfloat16 on a GPU."""
        if wide_resnet is None or self.plain or self.published or not self.norm.training:
            return False
        if not (x.is_cuda and torch.is_autocast_enabled("cuda")):
            return False
        channels = self.norm.num_features
        return torch.get_autocast_dtype("cuda") is torch.bfloat16 and channels & (channels - 1) == 0

    def _parts(self) -> tuple[list[nn.BatchNorm2d], list[Tensor], "Layout"]:
        norms, weights, layout = [], [self.stem.weight], []
        for block in self.blocks:
            assert isinstance(block, _Block)
            assert block.norm1 is not None  # the published network is not fused
            norms += [block.norm1, block.norm2]
            weights += [block.conv1.weight, block.conv2.weight]
            own = [block.shortcut.weight] if isinstance(block.shortcut, nn.Conv2d) else []
            weights += own
            layout += [block.conv1.stride[0], len(own), int(block.activated_shortcut)]
        return [*norms, self.norm], weights, layout


class _Block(nn.Module):
    def __init__(
        self, inputs: int, outputs: int, halves: bool, activated_shortcut: bool, raw: bool, norm_momentum: float
    ) -> None:
        super().__init__()
        stride = 2 if halves else 1
        self.activated_shortcut = activated_shortcut
        self.norm1 = None if raw else nn.BatchNorm2d(inputs, momentum=norm_momentum)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs, momentum=norm_momentum)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.shortcut = (
            nn.Identity() if inputs == outputs and stride == 1 else nn.Conv2d(inputs, outputs, 1, stride, bias=False)
        )

    def forward(self, parts: Parts) -> Parts:
        activated = parts if self.norm1 is None else _activate(self.norm1, parts)
        residual = each(self.conv2, _activate(self.norm2, each(self.conv1, activated)))
        shortcut = each(self.shortcut, activated if self.activated_shortcut else parts)
        return tuple(map(torch.add, shortcut, residual))


def _activate(norm: nn.BatchNorm2d, parts: Parts) -> Parts:
    return each(partial(leaky_relu, negative_slope=SLOPE), normalise(norm, parts))


def _register(name: str, summary: str, width: int, published: bool = False) -> None:
    register(
        BackboneSpec(
            name=name,
            summary=summary,
            sides=(16, 64),
            build=lambda shape, momentum: WideResNet(shape[0], 28, width, momentum, published),
            norm_momentum=NORM_MOMENTUM,
            partial=True,
            muon=True,
        )
    )


_register("wrn-28-2", "wide residual network, 128 features; the paper's for CIFAR-10", 2)
_register("wrn-28-8", "wide residual network, 512 features; the paper's for CIFAR-100", 8)
_register("wrn-28-2-published", "wrn-28-2 as in NorMatch's published code, which skips two batch norms", 2, True)
