"""What is particular to a backbone: published sizes, structure, and the errors of choosing one."""

import doctest

import pytest
import torch
from torch import nn
from torch.nn.functional import leaky_relu

import normatch.nets
import normatch.nets.backbone
from normatch.errors import UserError
from normatch.nets import backbones, create_backbone
from normatch.nets.mlp import MLP
from normatch.nets.wide_resnet import WideResNet


def count(*modules: nn.Module) -> int:
    return sum(parameter.numel() for module in modules for parameter in module.parameters())


@pytest.mark.parametrize(
    ("name", "shape", "features", "classes", "parameters"),
    [
        ("wrn-28-2", (3, 32, 32), 128, 10, 1_467_610),
        ("wrn-28-8", (3, 32, 32), 512, 100, 23_401_012),
        ("resnet-18", (3, 224, 224), 512, 1000, 11_689_512),
    ],
)
def test_published_sizes(name: str, shape: tuple[int, ...], features: int, classes: int, parameters: int) -> None:
    net = create_backbone(name, shape)
    assert net.features == features
    assert count(net, nn.Linear(features, classes)) == parameters


@pytest.mark.parametrize(
    ("name", "widths", "parameters"),
    [("quick-resnet", (64, 128, 256), 1_938_976), ("quick-resnet-wide", (128, 384, 512), 9_923_488)],
)
def test_quick_resnets_have_ten_convolutions(name: str, widths: tuple[int, ...], parameters: int) -> None:
    net = create_backbone(name, (3, 32, 32))
    convolutions = [module for module in net.modules() if isinstance(module, nn.Conv2d)]
    assert [conv.out_channels for conv in convolutions] == [32, *(width for width in widths for _ in range(3))]
    assert net.features == widths[-1]
    assert count(net) == parameters


def test_resnet_18_without_head() -> None:
    assert count(create_backbone("resnet-18", (3, 96, 96))) == 11_176_512


def test_sides_of_wide_resnet_halve_twice() -> None:
    net = create_backbone("wrn-28-2", (3, 32, 32))
    assert isinstance(net, WideResNet)
    (x,) = net.blocks((net.stem(torch.zeros(1, 3, 32, 32)),))
    assert x.shape == (1, 128, 8, 8)


def test_shortcuts_of_wide_resnet() -> None:
    """FixMatch's rule, spelled out: only the first block activates ahead of its shortcut."""
    torch.manual_seed(0)
    net = WideResNet(3, depth=10, width=2).eval()
    y = net.stem(torch.randn(2, 3, 16, 16))
    for index, block in enumerate(net.blocks):
        assert isinstance(block, nn.Module)
        for norm in (block.norm1, block.norm2):
            nn.init.uniform_(norm.weight, 0.5, 1.5)  # type: ignore[union-attr, arg-type]
            nn.init.uniform_(norm.bias, -1, 1)  # type: ignore[union-attr, arg-type]
        activated = leaky_relu(block.norm1(y), 0.1)  # type: ignore[operator]
        residual = block.conv2(leaky_relu(block.norm2(block.conv1(activated)), 0.1))  # type: ignore[operator]
        expected = block.shortcut(activated if index == 0 else y) + residual  # type: ignore[operator]
        torch.testing.assert_close(block((y,)), (expected,))
        y = expected


def test_start_of_wide_resnet() -> None:
    torch.manual_seed(0)
    net = create_backbone("wrn-28-2", (3, 32, 32))
    for module in net.modules():
        if isinstance(module, nn.Conv2d) and module.weight.numel() > 5000:
            fan_out = module.out_channels * module.kernel_size[0] ** 2
            assert float(module.weight.detach().std()) == pytest.approx((2 / fan_out) ** 0.5, rel=0.05)


@pytest.mark.parametrize("depth", [4, 27, 0])
def test_depths_that_do_not_exist(depth: int) -> None:
    with pytest.raises(ValueError, match=f"6n \\+ 4 with n at least 1, not {depth}"):
        WideResNet(3, depth=depth)


def test_images_need_not_be_square() -> None:
    net = create_backbone("wrn-28-2", (3, 24, 32)).eval()
    assert net(torch.zeros(1, 3, 24, 32)).shape == (1, 128)


def test_widths_of_mlp() -> None:
    assert MLP(7, hidden=32, features=16)(torch.zeros(4, 7)).shape == (4, 16)


def test_linear_is_the_vector_itself() -> None:
    net = create_backbone("linear", (9,))
    x = torch.randn(3, 9)
    assert net.features == 9
    assert torch.equal(net(x), x)


def test_every_size_from_8_to_256_has_a_backbone() -> None:
    for side in range(8, 257):
        assert any(spec.supports((3, side, side)) for _, spec in backbones.items()), side


def test_the_error_names_what_fits() -> None:
    with pytest.raises(UserError) as caught:
        create_backbone("wrn-28-2", (1, 8, 8))
    assert str(caught.value) == (
        "backbone 'wrn-28-2' does not take items of shape (1, 8, 8), only images (C, H, W) of 1 or 3 channels "
        "with sides of 16 to 64 pixels; choose quick-resnet or quick-resnet-wide or small-wide"
    )
    with pytest.raises(UserError, match=r"only images .*; choose linear or mlp"):
        create_backbone("resnet-18", (64,))
    with pytest.raises(UserError, match=r"only feature vectors .*; no backbone takes it: resize the images"):
        create_backbone("mlp", (3, 4000, 4000))


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UserError, match=r"unknown backbone 'wrn-28-3'.*did you mean 'wrn-28-"):
        create_backbone("wrn-28-3", (3, 32, 32))


@pytest.mark.parametrize("module", [normatch.nets, normatch.nets.backbone])
def test_examples_in_the_documentation(module: object) -> None:
    result = doctest.testmod(module)  # type: ignore[arg-type]
    assert result.attempted > 0
    assert result.failed == 0
