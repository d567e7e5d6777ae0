"""Convolutions by fewer products are the convolutions of torch, forward and backward."""

import copy

import pytest
import torch
from torch import Tensor
from torch.nn.functional import conv2d, leaky_relu, max_pool2d

from normatch.nets.small import SmallWide
from normatch.nets.winograd import convolve_images, convolve_maps, max_pool, normalise_maps


def error(found: Tensor, exact: Tensor) -> float:
    """Relative error in the mean square."""
    return float((found.double() - exact).norm() / exact.norm())


def same(x: Tensor) -> Tensor:
    return x


@pytest.mark.parametrize("side", [2, 4])
def test_error_is_that_of_single_precision(side: int) -> None:
    generator = torch.Generator().manual_seed(side)
    x = torch.randn(16, 24, side, side, generator=generator).requires_grad_()
    weight = torch.randn(40, 24, 3, 3, generator=generator).requires_grad_()
    to = torch.randn(16, 40, side, side, generator=generator)
    y = convolve_maps(x.permute(2, 3, 0, 1).contiguous(), weight).permute(2, 3, 0, 1)
    exact_x, exact_weight = (t.detach().double().requires_grad_() for t in (x, weight))
    exact = conv2d(exact_x, exact_weight, padding=1)
    found, expected = torch.autograd.grad(y, (x, weight), to), torch.autograd.grad(exact, (exact_x, exact_weight), to)
    for mine, theirs in zip((y, *found), (exact, *expected), strict=True):
        assert error(mine.detach(), theirs.detach()) < 2e-6


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("sides", [(8, 8), (3, 5)])
def test_images_are_convolved(channels: int, sides: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(channels)
    x = torch.randn(5, channels, *sides, generator=generator)
    weight = torch.randn(7, channels, 3, 3, generator=generator)
    y = convolve_images(x, weight)
    assert y.is_contiguous()
    torch.testing.assert_close(y.permute(2, 3, 0, 1), conv2d(x, weight, padding=1))


def test_maps_are_pooled_and_normalised() -> None:
    maps = torch.randn(4, 6, 5, 3, generator=torch.Generator().manual_seed(0))
    images = maps.permute(2, 3, 0, 1)
    assert torch.equal(max_pool(maps, torch.neg).permute(2, 3, 0, 1), -max_pool2d(images, 2))
    norm, theirs = torch.nn.BatchNorm2d(3), torch.nn.BatchNorm2d(3)
    torch.testing.assert_close(normalise_maps(maps, norm, same).permute(2, 3, 0, 1), theirs(images))
    torch.testing.assert_close(norm.running_var, theirs.running_var)


def plainly(net: SmallWide, x: Tensor) -> Tensor:
    """The network as its description says."""
    x = max_pool2d(leaky_relu(net.norm(net.stem(x)), 0.1), 2)
    for stage in (net.stage1, net.stage2, net.stage3):
        x = max_pool2d(x, 2) if stage is net.stage3 else x
        x = leaky_relu(stage.norm(stage.conv(x)), 0.1)
    return x.mean((2, 3))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("side", [8, 9, 16])
@pytest.mark.parametrize("training", [True, False])
def test_small_wide_is_one_function_in_all_its_forms(channels: int, side: int, training: bool) -> None:
    torch.manual_seed(channels)
    # In double precision, where no rounding moves a number across a kink.
    net = SmallWide(channels).double().train(training)
    other = copy.deepcopy(net)
    x = torch.randn(12, channels, side, side, dtype=torch.float64)
    to = torch.randn(12, 128, dtype=torch.float64)
    mine, theirs = net(x), plainly(other, x)
    torch.testing.assert_close(mine, theirs)
    mine.backward(to)
    theirs.backward(to)
    for (name, p), q in zip(net.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, msg=name)
    for (name, b), c in zip(net.named_buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(b, c, msg=name)
