"""The questions that every backbone must answer. A new one joins by being registered."""

import copy
import re
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from normatch.errors import UserError
from normatch.nets import Backbone, backbones, create_backbone, find_backbone

NAMES = backbones.names()

CANDIDATES = [(c, side, side) for c in (1, 3) for side in (8, 16, 32, 64, 96)] + [(5,), (64,)]


def shape_of(name: str) -> tuple[int, ...]:
    """The smallest of the shapes that the backbone takes."""
    return next(shape for shape in CANDIDATES if backbones.get(name).supports(shape))


def build(name: str, seed: int = 0, norm_momentum: float | None = None) -> Backbone:
    torch.manual_seed(seed)
    return create_backbone(name, shape_of(name), norm_momentum)


def batch(name: str, n: int = 4) -> Tensor:
    return torch.randn(n, *shape_of(name), generator=torch.Generator().manual_seed(1))


# wrn-28-8 is the code of wrn-28-2, with sixteen times the work.
@pytest.fixture(params=[name for name in NAMES if name != "wrn-28-8"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_output_shape_for_every_shape_it_takes(name: str) -> None:
    assert backbones.get(name).summary
    for shape in [shape for shape in CANDIDATES if backbones.get(name).supports(shape)]:
        net = create_backbone(name, shape).eval()
        with torch.no_grad():
            assert net(torch.zeros(1, *shape)).shape == (1, net.features)


def test_every_parameter_learns(name: str) -> None:
    net = build(name)
    weights = torch.randn(net.features, generator=torch.Generator().manual_seed(2))
    (net(batch(name).requires_grad_()) @ weights).square().mean().backward()
    for parameter_name, parameter in net.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name
        assert parameter.grad.abs().sum() > 0, parameter_name


def test_evaluation_depends_on_neither_batch_nor_layout_nor_much_on_precision(name: str) -> None:
    net = build(name)
    with torch.no_grad():
        start = net(batch(name))  # which also moves the statistics
    assert 0.05 < start.square().mean().sqrt() < 20, "the flow sees these numbers from the first step on"
    net.eval()
    x = batch(name)
    with torch.no_grad():
        together = net(x)
        assert torch.equal(net(x), together)
        torch.testing.assert_close(net(x[1:2]), together[1:2], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(net(x.flip(0)), together.flip(0), rtol=1e-4, atol=1e-4)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            rough = net(x)
        assert torch.nn.functional.cosine_similarity(together, rough.float()).min() > 0.99
        if x.ndim == 4:
            net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            torch.testing.assert_close(
                net(x.contiguous(memory_format=torch.channels_last)), together, rtol=1e-3, atol=1e-3
            )


def test_every_batch_norm_has_the_momentum(name: str) -> None:
    for given in (None, 0.25):
        expected = given or backbones.get(name).norm_momentum
        norms = [
            m for m in build(name, norm_momentum=given).modules() if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d)
        ]
        assert {norm.momentum for norm in norms} == ({expected} if norms else set())


def test_the_seed_decides_the_start_and_a_file_keeps_the_state(name: str, tmp_path: Path) -> None:
    first, again, second = build(name, seed=0), build(name, seed=0), build(name, seed=1)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    first(batch(name))
    safetensors.torch.save_file(first.state_dict(), tmp_path / "net.safetensors")
    second.load_state_dict(safetensors.torch.load_file(tmp_path / "net.safetensors"))
    with torch.no_grad():
        assert torch.equal(first.eval()(batch(name)), second.eval()(batch(name)))


def test_impossible_shapes_are_refused(name: str) -> None:
    for shape in [(3, 4, 4), (3, 1000, 1000), (2, 32, 32), (32, 32), (), (0,)]:
        said = rf"backbone '{name}' does not take samples of shape {re.escape(str(shape))}, only"
        with pytest.raises(UserError, match=said):
            create_backbone(name, shape)


def test_compiles_as_one_graph_where_only_some_samples_learn(name: str) -> None:
    if name in ("wrn-28-2-published", "quick-resnet-wide"):
        return  # the code of wrn-28-2 and quick-resnet
    net, x, learning = build(name), batch(name), {"learning": 2} if find_backbone(name).partial else {}
    torch.compiler.reset()
    compiled = torch.compile(net, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x, **learning), copy.deepcopy(net)(x, **learning))
