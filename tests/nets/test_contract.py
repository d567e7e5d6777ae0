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

# Our own: parameters without a head, for the smallest shape that is tried below.
SIZES = {
    "linear": 0,
    "mlp": 5 * 256 + 256 * 128 + 2 * (256 + 128),
    "resnet-18": 11_176_512 - 2 * 64 * 7 * 7,  # one channel in place of three
    "small-wide": 9 * (32 + 32 * 64 + 64 * 64 + 64 * 128) + 2 * (32 + 64 + 64 + 128),
    "wrn-28-2": 1_467_610 - 129 * 10 - 2 * 16 * 9,
    "wrn-28-8": 23_401_012 - 513 * 100 - 2 * 16 * 9,
}
CANDIDATES = [(c, side, side) for c in (1, 3) for side in (8, 16, 32, 64, 96)] + [(5,), (64,)]


def shape_of(name: str) -> tuple[int, ...]:
    """The smallest of the shapes that the backbone takes."""
    return next(shape for shape in CANDIDATES if backbones.get(name).supports(shape))


def build(name: str, seed: int = 0, norm_momentum: float | None = None) -> Backbone:
    torch.manual_seed(seed)
    return create_backbone(name, shape_of(name), norm_momentum)


def batch(name: str, n: int = 4) -> Tensor:
    return torch.randn(n, *shape_of(name), generator=torch.Generator().manual_seed(1))


def norms(net: nn.Module) -> list[nn.BatchNorm1d | nn.BatchNorm2d]:
    return [module for module in net.modules() if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d)]


# wrn-28-8 is the code of wrn-28-2, with sixteen times the work.
@pytest.fixture(params=[name for name in NAMES if name != "wrn-28-8"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_spec_describes_itself(name: str) -> None:
    spec = backbones.get(name)
    assert spec.name == name
    assert spec.summary
    assert "\n" not in spec.summary
    assert spec.takes


def test_output_shape_for_every_shape_it_takes(name: str) -> None:
    shapes = [shape for shape in CANDIDATES if backbones.get(name).supports(shape)]
    for shape in shapes:
        net = create_backbone(name, shape).eval()
        with torch.no_grad():
            assert net(torch.zeros(2, *shape)).shape == (2, net.features)


@pytest.mark.parametrize("name", SIZES)
def test_number_of_parameters(name: str) -> None:
    assert sum(parameter.numel() for parameter in build(name).parameters()) == SIZES[name]


def test_every_parameter_learns(name: str) -> None:
    net = build(name)
    weights = torch.randn(net.features, generator=torch.Generator().manual_seed(2))
    (net(batch(name).requires_grad_()) @ weights).square().mean().backward()
    for parameter_name, parameter in net.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name
        assert parameter.grad.abs().sum() > 0, parameter_name


def test_evaluation_is_deterministic_and_rows_are_independent(name: str) -> None:
    net = build(name)
    net(batch(name))  # statistics that differ from the initial ones
    net.eval()
    x = batch(name)
    with torch.no_grad():
        together = net(x)
        assert torch.equal(net(x), together)
        torch.testing.assert_close(net(x[1:2]), together[1:2], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(net(x.flip(0)), together.flip(0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("norm_momentum", [None, 0.25])
def test_running_statistics_move_by_the_momentum(name: str, norm_momentum: float | None) -> None:
    net = build(name, norm_momentum=norm_momentum)
    expected = norm_momentum or backbones.get(name).norm_momentum
    seen: dict[nn.Module, Tensor] = {}

    def remember(module: nn.Module, inputs: tuple[Tensor]) -> None:
        seen[module] = inputs[0].detach().transpose(0, 1).flatten(1)  # (channels, everything else)

    for norm in norms(net):
        norm.register_forward_pre_hook(remember)
    with torch.no_grad():
        net(batch(name))
    for norm in norms(net):
        assert norm.running_mean is not None
        assert norm.running_var is not None
        values = seen[norm]
        torch.testing.assert_close(norm.running_mean, expected * values.mean(1), rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(norm.running_var, 1 - expected + expected * values.var(1), rtol=1e-3, atol=1e-5)


def test_bfloat16_autocast(name: str) -> None:
    net = build(name).eval()
    x = batch(name)
    with torch.no_grad():
        exact = net(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            rough = net(x)
    assert exact.dtype == torch.float32
    assert rough.isfinite().all()
    assert torch.nn.functional.cosine_similarity(exact, rough.float()).min() > 0.99


def test_channels_last(name: str) -> None:
    if len(shape_of(name)) == 1:
        return
    net, x = build(name), batch(name)
    other = copy.deepcopy(net).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    expected, got = net(x), other(x.contiguous(memory_format=torch.channels_last))
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    got.square().mean().backward()
    assert all(parameter.grad is not None for parameter in other.parameters())


def test_the_seed_decides_the_start_and_a_file_keeps_the_state(name: str, tmp_path: Path) -> None:
    first, again, second = build(name, seed=0), build(name, seed=0), build(name, seed=1)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    first(batch(name))
    safetensors.torch.save_file(first.state_dict(), tmp_path / "net.safetensors")
    second.load_state_dict(safetensors.torch.load_file(tmp_path / "net.safetensors"))
    with torch.no_grad():
        assert torch.equal(first.eval()(batch(name)), second.eval()(batch(name)))


def test_features_have_a_sane_size_at_the_start(name: str) -> None:
    """Neither vanishing nor exploding with depth: the flow sees these numbers from the first step on."""
    with torch.no_grad():
        assert 0.05 < build(name)(batch(name, 8)).square().mean().sqrt() < 20


@pytest.mark.parametrize("shape", [(3, 4, 4), (3, 1000, 1000), (2, 32, 32), (32, 32), (), (0,)])
def test_impossible_shapes_are_refused(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(
        UserError, match=rf"backbone '{name}' does not take samples of shape {re.escape(str(shape))}, only"
    ):
        create_backbone(name, shape)


@pytest.mark.parametrize("some", [False, True])
def test_compiles_as_one_graph_also_where_only_some_samples_learn(name: str, some: bool) -> None:
    if name in ("wrn-28-2-published", "quick-resnet-wide") or (some and not find_backbone(name).partial):
        return  # the code of wrn-28-2 and quick-resnet
    net, x, learning = build(name), batch(name), {"learning": 2} if some else {}
    torch.compiler.reset()
    compiled = torch.compile(net, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x, **learning), copy.deepcopy(net)(x, **learning))
