"""Passes in which only the first samples of a batch learn."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from normatch.nets import backbones, create_backbone, find_backbone
from normatch.nets.backbone import Backbone
from normatch.nets.partial import join, normalise, parts_of

LARGE = ("wrn-28-8", "quick-resnet-wide")  # the code of others
PARTIAL = sorted(name for name, spec in backbones.items() if spec.partial and name not in LARGE)


def normalised(norm: nn.BatchNorm2d, x: Tensor, learning: int) -> Tensor:
    return join(normalise(norm, parts_of(x, learning)))


def images(n: int, name: str = "wrn-28-2") -> Tensor:
    """For that network, which may take no small ones."""
    generator = torch.Generator().manual_seed(n)
    return torch.randn(n, *shape_for(name), dtype=torch.float64, generator=generator)


def shape_for(name: str) -> tuple[int, int, int]:
    return next((3, side, side) for side in (16, 64) if find_backbone(name).supports((3, side, side)))


def network(name: str) -> Backbone:
    torch.manual_seed(0)
    return create_backbone(name, shape_for(name)).double().train()


@given(n=st.integers(2, 8), data=st.data())
def test_part_of_a_batch_is_normalised_by_all_of_it(n: int, data: st.DataObject) -> None:
    learning = data.draw(st.integers(1, n))
    norm = nn.BatchNorm2d(3).double().train()
    nn.init.uniform_(norm.weight, 0.5, 1.5)
    reference = copy.deepcopy(norm)
    x = images(n)[:, :, :4, :4] * 2 + 1
    assert torch.allclose(normalised(norm, x, learning), reference(x))
    for ours, theirs in zip(norm.buffers(), reference.buffers(), strict=True):
        assert torch.allclose(ours, theirs)


def test_statistics_are_taken_in_float32() -> None:
    x = torch.randn(64, 3, 8, 8, generator=torch.Generator().manual_seed(0)) * 3 + 20
    norm = nn.BatchNorm2d(3)
    low = x.bfloat16()
    exact = nn.BatchNorm2d(3)(low.float())
    far, near = ((out.float() - exact).abs().mean() for out in (normalised(norm, low, 40), norm(low)))
    assert far < 1.2 * near


def test_the_gradient_is_orthogonal_to_shift_and_scale() -> None:
    """As behind any batch norm: weights of a convolution before it neither grow nor shrink by the gradient."""
    norm = nn.BatchNorm2d(3).double().train()
    x = (torch.randn(6, 3, 4, 4, dtype=torch.float64) * 2 + 1).requires_grad_()
    (normalised(norm, x, 4) * torch.randn(6, 3, 4, 4, dtype=torch.float64)).sum().backward()
    g = x.grad
    assert g is not None
    assert g[4:].abs().max() == 0
    assert g[:4].abs().max() > 0
    assert g.sum((0, 2, 3)).abs().max() < 1e-9
    assert (g * x.detach()).sum((0, 2, 3)).abs().max() < 1e-9


@pytest.mark.parametrize("name", PARTIAL)
def test_a_network_sees_all_samples_and_learns_from_some(name: str) -> None:
    """The features and running statistics are those of the ordinary pass, also where nothing learns."""
    net, x = network(name), images(6, name).requires_grad_()
    reference = copy.deepcopy(net)
    assert torch.equal(copy.deepcopy(net)(x, learning=6), copy.deepcopy(net)(x))
    z = net(x, learning=4)
    assert torch.allclose(z, reference(x), atol=1e-7)  # rounding grows with the depth
    for ours, theirs in zip(net.buffers(), reference.buffers(), strict=True):
        assert torch.allclose(ours, theirs)
    z.square().sum().backward()
    assert x.grad is not None
    assert x.grad[4:].abs().max() == 0
    assert x.grad[:4].abs().max() > 0
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in net.parameters())
    assert torch.allclose(net.eval()(x, learning=4), reference.eval()(x))
