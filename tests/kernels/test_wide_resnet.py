"""The hand-written training pass of wide residual networks against the modules: on a GPU, or in Triton's interpreter.

``TRITON_INTERPRET=1`` makes this file run the kernels on CPU tensors; its last test does so where Triton is installed.
"""

import copy

import pytest
import torch
from torch import Tensor, nn

import normatch.nets.wide_resnet as zoo
from normatch.nets.wide_resnet import WideResNet
from tests.kernels import DEVICE, INTERPRETED, must_pass_interpreted, needs_gpu, needs_kernels, needs_triton


def network(depth: int, width: int, channels: int = 3) -> WideResNet:
    """A network whose normalisations are off their start."""
    torch.manual_seed(depth)
    net = WideResNet(channels, depth, width).train()
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, std=0.3)
    return net.to(DEVICE, memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def fused(net: WideResNet, images: Tensor, dtype: torch.dtype, learning: int) -> Tensor:
    from normatch.kernels.wide_resnet import wide_resnet

    return wide_resnet(images, *net._parts(), dtype, zoo.SLOPE, learning)


def everything(net: WideResNet, z: Tensor, learning: int) -> dict[str, Tensor]:
    """Features, running statistics, and the gradients of a loss that weighs each learning feature differently."""
    weights = torch.randn(z.shape, generator=torch.Generator().manual_seed(3)).to(z)
    net.zero_grad()
    (z * weights)[:learning].sum().backward()
    statistics = {name: b for name, b in net.named_buffers() if "running" in name}
    return {
        "features": z.detach(),
        **{n: p.grad for n, p in net.named_parameters() if p.grad is not None},
        **statistics,
    }


def far(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> float:
    """The largest relative distance."""
    assert ours.keys() == theirs.keys()
    return max(float((ours[k] - theirs[k]).norm() / theirs[k].norm()) for k in theirs)


@needs_kernels
@pytest.mark.parametrize(
    ("items", "learning", "side", "depth", "width", "channels"),
    [(3, 3, 8, 10, 2, 3), (5, 3, 8, 10, 2, 1), (3, 2, 12, 10, 1, 3), (2, 2, 10, 10, 4, 3)],
)
def test_equals_the_modules(items: int, learning: int, side: int, depth: int, width: int, channels: int) -> None:
    net = network(depth, width, channels)
    images = torch.randn(items, channels, side, side, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    exact = copy.deepcopy(net).double()
    expected = everything(exact, exact(images.double(), learning), learning)
    if INTERPRETED:
        got = everything(net, fused(net, images, torch.float32, learning), learning)
        assert far(got, expected) < 1e-5
        return
    plain = copy.deepcopy(net)
    got = everything(net, fused(net, images, torch.bfloat16, learning), learning)
    # What bfloat16 costs the modules themselves is the measure of what it may cost here.
    plain.plain = True
    with torch.autocast("cuda", torch.bfloat16):
        z = plain(images, learning)
    assert far(got, expected) < 1.3 * far(everything(plain, z, learning), expected)


@needs_triton
@needs_gpu
def test_a_network_in_training_uses_it_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    net, images = network(10, 2), torch.randn(4, 3, 32, 32, device="cuda")
    calls: list[tuple[object, ...]] = []
    monkeypatch.setattr(zoo, "wide_resnet", lambda *arguments: calls.append(arguments))
    net(images)
    assert not calls  # float32
    with torch.autocast("cuda", torch.bfloat16):
        net.eval()(images)
        assert not calls
        net.train()(images)
    assert len(calls) == 1


@needs_triton
@pytest.mark.slow
@pytest.mark.skipif(INTERPRETED, reason="this is the interpreter's run")
@pytest.mark.skipif(torch.cuda.is_available(), reason="the GPU has run the kernels themselves")
def test_in_the_interpreter() -> None:
    must_pass_interpreted(__file__)
