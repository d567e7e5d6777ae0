"""What is particular to a backbone: published sizes, structure, and the errors of choosing one."""

import pytest
import torch
from torch import nn
from torch.nn.functional import leaky_relu

from normatch.errors import UserError
from normatch.nets import backbones, create_backbone, suitable_backbone
from normatch.nets.wide_resnet import WideResNet, _Block


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    ("name", "shape", "features", "classes", "parameters"),
    [
        ("wrn-28-2", (3, 32, 32), 128, 10, 1_467_610),
        ("wrn-28-8", (3, 32, 32), 512, 100, 23_401_012),
        ("resnet-18", (3, 224, 224), 512, 1000, 11_689_512),
        ("wrn-28-2-published", (3, 32, 32), 128, 10, 1_467_610 - 2 * (32 + 64)),  # without two batch norms
        ("small-wide", (3, 32, 32), 128, 0, 9 * (3 * 32 + 32 * 64 + 64 * 64 + 64 * 128) + 2 * (32 + 64 + 64 + 128)),
        ("mlp", (5,), 128, 0, 5 * 256 + 256 * 128 + 2 * (256 + 128)),
        ("identity", (9,), 9, 0, 0),
        ("identity", (3, 8, 16), 384, 0, 0),
    ],
)
def test_published_sizes(name: str, shape: tuple[int, ...], features: int, classes: int, parameters: int) -> None:
    net = create_backbone(name, shape)
    assert net.features == features
    assert count(net) + classes * (features + 1) == parameters


@pytest.mark.parametrize(("name", "widths"), [("quick-resnet", (64, 128, 256)), ("quick-resnet-wide", (128, 384, 512))])
def test_quick_resnets_have_ten_convolutions(name: str, widths: tuple[int, ...]) -> None:
    net = create_backbone(name, (3, 32, 32))
    convolutions = [module for module in net.modules() if isinstance(module, nn.Conv2d)]
    assert [conv.out_channels for conv in convolutions] == [32, *(width for width in widths for _ in range(3))]
    assert net.features == widths[-1]


@pytest.mark.parametrize("published", [False, True])
def test_blocks_of_wide_resnet(published: bool) -> None:
    """FixMatch's rule, spelled out: only the first block activates ahead of its shortcut. In NorMatch's published code
    the first blocks of groups 2 and 3 do not activate at all ahead of their first convolution."""
    torch.manual_seed(0)
    net = WideResNet(3, depth=16, width=2, published=published).eval()
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -1, 1)
    x = torch.randn(2, 3, 16, 16)
    y = net.stem(x)
    for index, block in enumerate(net.blocks):
        assert isinstance(block, _Block)
        raw = published and index in (2, 4)
        assert (block.norm1 is None) == raw
        activated = y if block.norm1 is None else leaky_relu(block.norm1(y), 0.1)
        residual = block.conv2(leaky_relu(block.norm2(block.conv1(activated)), 0.1))
        y = block.shortcut(activated if index == 0 else y) + residual
    assert y.shape == (2, 128, 4, 4)
    torch.testing.assert_close(net(x), leaky_relu(net.norm(y), 0.1).mean((2, 3)))


def test_start_of_wide_resnet() -> None:
    torch.manual_seed(0)
    net = create_backbone("wrn-28-2", (3, 32, 32))
    for module in net.modules():
        if isinstance(module, nn.Conv2d) and module.weight.numel() > 5000:
            fan_out = module.out_channels * module.kernel_size[0] ** 2
            assert float(module.weight.detach().std()) == pytest.approx((2 / fan_out) ** 0.5, rel=0.05)


def test_linear_is_the_vector_itself_and_images_need_not_be_square() -> None:
    x = torch.randn(3, 9)
    assert torch.equal(create_backbone("identity", (9,))(x), x)
    assert create_backbone("wrn-28-2", (3, 24, 32)).eval()(torch.zeros(1, 3, 24, 32)).shape == (1, 128)


def test_every_size_from_8_to_256_has_a_backbone() -> None:
    for side in range(8, 257):
        assert backbones.get(suitable_backbone((3, side, side))).supports((3, side, side))


def test_the_error_names_what_fits() -> None:
    small = (
        r"'wrn-28-2' does not take samples of shape \(1, 8, 8\), only images .*; choose .*quick-resnet .*small-wide$"
    )
    with pytest.raises(UserError, match=small):
        create_backbone("wrn-28-2", (1, 8, 8))
    with pytest.raises(UserError, match=r"only images .*; choose identity or mlp"):
        create_backbone("resnet-18", (64,))
    with pytest.raises(UserError, match=r"only feature vectors .*; none takes it: set another image_size"):
        create_backbone("mlp", (3, 4000, 4000))
    with pytest.raises(UserError, match=r"no backbone takes samples of shape \(3, 4, 4\): resize them"):
        suitable_backbone((3, 4, 4))
    with pytest.raises(UserError, match=r"unknown backbone 'wrn-28-3'.*did you mean 'wrn-28-"):
        create_backbone("wrn-28-3", (3, 32, 32))
