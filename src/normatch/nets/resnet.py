"""ResNet-18 in its ImageNet form: the paper's backbone for STL-10 and Mini-ImageNet."""

from torch import Tensor, nn
from torch.nn.functional import max_pool2d, relu

from normatch.nets.backbone import Backbone, BackboneSpec, register
from normatch.nets.partial import Parts, each, join, normalise, parts_of

__all__ = ["ResNet18"]


class ResNet18(Backbone):
    """The 18-layer residual network of He et al. 2016 (arXiv:1512.03385, Table 1) without its last layer.

    A 7×7 convolution and a max pool, each of stride 2, then four stages of two blocks with 64, 128, 256 and 512
    channels, and the mean over all pixels.
    """

    def __init__(self, channels: int, norm_momentum: float) -> None:
        super().__init__(features=512)
        self.stem = nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)
        self.norm = nn.BatchNorm2d(64, momentum=norm_momentum)
        self.blocks = nn.Sequential(
            *(
                _Block(inputs, outputs, stride, norm_momentum)
                for before, outputs in ((64, 64), (64, 128), (128, 256), (256, 512))
                for inputs, stride in ((before, 1 if before == outputs else 2), (outputs, 1))
            )
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor, learning: int | None = None) -> Tensor:
        """Images (N, C, H, W) to features (N, 512); only the first ``learning`` are back-propagated."""
        parts = normalise(self.norm, each(self.stem, parts_of(x, learning)))
        parts = self.blocks(each(_activate_and_pool, parts))
        return join(parts).mean(dim=(2, 3))


class _Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, norm_momentum: float) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs, momentum=norm_momentum)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs, momentum=norm_momentum)
        self.shortcut: nn.Module = nn.Identity()
        if inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs, momentum=norm_momentum)
            )

    def forward(self, parts: Parts) -> Parts:
        residual = each(relu, normalise(self.norm1, each(self.conv1, parts)))
        residual = normalise(self.norm2, each(self.conv2, residual))
        if isinstance(self.shortcut, nn.Sequential):
            conv, norm = self.shortcut
            assert isinstance(norm, nn.BatchNorm2d)
            parts = normalise(norm, each(conv, parts))
        return tuple(relu(x + y) for x, y in zip(parts, residual, strict=True))


def _activate_and_pool(x: Tensor) -> Tensor:
    return max_pool2d(relu(x), 3, stride=2, padding=1)


register(
    BackboneSpec(
        name="resnet-18",
        summary="residual network of the ImageNet form, 512 features; the paper's for STL-10 and Mini-ImageNet",
        sides=(64, 256),
        build=lambda shape, momentum: ResNet18(shape[0], momentum),
        partial=True,
        muon=True,
    ),
)
