"""The optimisers against plain torch, and Muon against its formula in NumPy by singular values."""

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn

from normatch.cli import main
from normatch.config import Config
from normatch.methods.parts.groups import Group, OptimConfig, apart, sgd_groups
from normatch.training.optim import COEFFICIENTS, ROUNDS, Optimisers, orthogonal
from tests.training.test_wiring import stepped

Matrix = NDArray[np.float64]


def optimisers_of(groups: list[Group], optim: OptimConfig | None = None) -> Optimisers:
    """Optimisers of ten steps, whose parameters are called p0, p1, … in the order of their groups."""
    names = {id(p): f"p{i}" for i, p in enumerate(p for group in groups for p in group.params)}
    return Optimisers(groups, names, optim or OptimConfig(), total=10, device=torch.device("cpu"))


def test_optimisers_follow_plain_torch() -> None:
    """SGD with Nesterov momentum, AdamW with clipping of a group of two, both on the cosine, against unfused torch."""
    torch.manual_seed(0)
    start = [torch.randn(4, 3), torch.randn(3), torch.randn(2, 2)]
    ours, theirs = ([nn.Parameter(t.clone()) for t in start] for _ in range(2))
    groups = [Group(ours[:1], "sgd", 0.1, 0.01), Group(ours[1:], "adamw", 0.01, 0.02, clip=0.5)]
    optimisers = optimisers_of(groups)
    sgd = torch.optim.SGD(theirs[:1], lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01, foreach=False)
    adamw = torch.optim.AdamW(theirs[1:], lr=0.01, weight_decay=0.02, foreach=False)
    for step in range(6):
        # One gradient is small: clipped by itself it would stay as it is, as a part of its group it shrinks.
        gradients = [torch.randn(4, 3), torch.randn(3) * 3, torch.randn(2, 2) * 0.01]
        for params in (ours, theirs):
            for p, g in zip(params, gradients, strict=True):
                p.grad = g.clone()
        optimisers.step(torch.tensor(step))
        factor = math.cos(7 * math.pi / 16 * step / 10)
        norm = math.hypot(gradients[1].norm(), gradients[2].norm())
        for p in theirs[1:]:
            assert p.grad is not None
            p.grad *= min(1.0, 0.5 / (norm + 1e-6))
        for optimiser, rate in ((sgd, 0.1), (adamw, 0.01)):
            optimiser.param_groups[0]["lr"] = rate * factor
            optimiser.step()
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other)


def test_the_backbone_may_have_a_rate_of_its_own() -> None:
    body, top = (nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)) for _ in range(2))
    groups = sgd_groups([*body.parameters(), *top.parameters()], OptimConfig(lr=0.1, weight_decay=0.01))
    assert apart(groups, body.parameters(), OptimConfig()) == groups
    made = apart(groups, body.parameters(), OptimConfig(backbone_lr=0.002))
    rates = {id(p): (group.rule, group.lr, group.weight_decay) for group in made for p in group.params}
    assert [rates[id(p)] for p in top.parameters()] == [("sgd", 0.1, 0.01 * (p.ndim > 1)) for p in top.parameters()]
    assert [rates[id(p)] for p in body.parameters()] == [
        ("adamw", 0.002, 0.01 * (p.ndim > 1)) for p in body.parameters()
    ]


def test_a_parameter_may_get_its_first_gradient_later_than_others() -> None:
    """As that of a head which learns from some epoch on: torch's fused SGD refuses it."""
    start = torch.randn(2, 3)
    ours, theirs = ([nn.Parameter(t.clone()) for t in start] for _ in range(2))
    optimisers = optimisers_of([Group(ours, "sgd", 0.1, 0.01)], OptimConfig(cosine=0))
    sgd = torch.optim.SGD(theirs, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01, foreach=False)
    for step in range(4):
        for params in (ours, theirs):
            params[0].grad = torch.full((3,), step + 1.0)
            params[1].grad = torch.ones(3) if step >= 2 else None
        optimisers.step(torch.tensor(step))
        sgd.step()
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other)


def test_gradients_accumulate_where_asked_and_travel_with_the_state() -> None:
    p, q = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    groups = [Group([p], "adamw", 0.1, 0.0), Group([q], "adamw", 0.1, 0.0, accumulate=True)]
    optimisers = optimisers_of(groups)
    for step in range(3):
        optimisers.zero()
        (p.sum() + q.sum()).backward()
        optimisers.step(torch.tensor(step))
    assert p.grad is not None
    assert p.grad.tolist() == [1, 1]
    assert optimisers.state()["adamw.gradient.p1"].tolist() == [3, 3]
    assert "adamw.gradient.p0" not in optimisers.state()
    optimisers.load(optimisers.state() | {"adamw.gradient.p1": torch.ones(2)})
    assert q.grad is not None
    assert q.grad.tolist() == [1, 1]


def test_a_loaded_state_lies_in_memory_as_its_parameters_do() -> None:
    """Files keep no strides, and a GPU's fused updates refuse what lies otherwise than its parameter."""
    p, q = (nn.Parameter(torch.randn(4, 3, 3, 3).contiguous(memory_format=torch.channels_last)) for _ in range(2))
    groups = [Group([p], "sgd", 0.1, 0.0), Group([q], "adamw", 0.1, 0.0, accumulate=True)]
    optimisers = optimisers_of(groups)
    (p.square().sum() + q.square().sum()).backward()
    optimisers.step(torch.tensor(0))
    saved = {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in optimisers.state().items()}
    optimisers.load(saved)
    loaded = optimisers.state()
    strides = [tensor.stride() for tensor in loaded.values() if tensor.shape == p.shape]
    assert strides == [p.stride()] * 4, "momentum, two moments, a gradient"
    torch.testing.assert_close(loaded, saved, rtol=0, atol=0)


MOMENTUM = "sgd.momentum_buffer.p0"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda s: s | {"sgd.momentum_buffer.p2": s[MOMENTUM]}, "no parameter .*momentum_buffer.p2'"),
        (lambda s: s | {"adamw.exp_avg.p0": s[MOMENTUM]}, "no parameter .*'adamw.exp_avg.p0'"),
        (lambda s: s | {MOMENTUM: torch.ones(3)}, rf"no parameter of shape \(3,\) has .*'{MOMENTUM}'"),
        (lambda s: {"adamw.exp_avg.p1": s["adamw.exp_avg.p1"]}, f"the optimiser's state has no '{MOMENTUM}'"),
    ],
)
def test_a_state_of_other_groups_is_named_and_changes_nothing(
    change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]], complaint: str
) -> None:
    p, q = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    optimisers = optimisers_of([Group([p], "sgd", 0.1, 0.0), Group([q], "adamw", 0.1, 0.0)])
    p.grad, q.grad = torch.ones(2), torch.ones(2)
    optimisers.step(torch.tensor(0))
    before = {name: tensor.clone() for name, tensor in optimisers.state().items()}
    with pytest.raises(ValueError, match=complaint):
        optimisers.load(change(before))
    torch.testing.assert_close(optimisers.state(), before, rtol=0, atol=0)


def by_rounds(s: Matrix) -> Matrix:
    """What becomes of singular values."""
    a, b, c = COEFFICIENTS
    for _ in range(ROUNDS):
        s = a * s + b * s**3 + c * s**5
    return s


def by_singular_values(matrix: Matrix) -> Matrix:
    """What :func:`orthogonal` is to compute."""
    u, s, v = np.linalg.svd(matrix / np.linalg.norm(matrix), full_matrices=False)
    return np.asarray((u * by_rounds(s)) @ v)


def by_formula(weight: Matrix, gradients: list[Matrix], momentum: float, rates: list[float]) -> Matrix:
    """The weight after a step with each gradient, and its learning rate."""
    sum_of_gradients = np.zeros_like(weight)
    for gradient, rate in zip(gradients, rates, strict=True):
        sum_of_gradients = momentum * sum_of_gradients + gradient
        update = by_singular_values(gradient + momentum * sum_of_gradients)
        length = np.linalg.norm(weight)
        weight = weight - rate * length / np.linalg.norm(update) * update
        weight = weight * (length / np.linalg.norm(weight))
    return weight


@given(rows=st.integers(1, 9), columns=st.integers(1, 9), count=st.integers(1, 3), seed=st.integers(0, 99))
def test_products_of_matrices_change_singular_values_alone(rows: int, columns: int, count: int, seed: int) -> None:
    matrices = np.random.default_rng(seed).standard_normal((count, rows, columns)) * 10.0**seed
    made = orthogonal(torch.from_numpy(matrices)).numpy()
    np.testing.assert_allclose(made, [by_singular_values(matrix) for matrix in matrices], atol=1e-9)


def test_gradients_may_stop() -> None:
    """Momentum falls by a tenth in each step, until its squares are 0 in float32."""
    one = torch.randn(1, 4, 9, generator=torch.Generator().manual_seed(0))
    for exponent in range(46):
        made = orthogonal(one * 10.0**-exponent)
        assert made.isfinite().all()
        assert made.abs().max() < 1.5
    weight = nn.Parameter(torch.ones(4, 1, 3, 3))
    optimisers = optimisers_of([Group([weight], "muon", 0.1, 0.0)], OptimConfig(momentum=0.9))
    for step in range(600):
        weight.grad = one.view(4, 1, 3, 3) if step == 0 else torch.zeros_like(weight)
        optimisers.step(torch.tensor(0))
    assert weight.isfinite().all()
    assert weight.norm().item() == pytest.approx(6, rel=1e-3)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_steps_follow_the_formula_wherever_weights_lie_in_memory(momentum: float, layout: torch.memory_format) -> None:
    """Several convolutions, two of them of one shape and one with more rows than columns."""
    rng, steps, rate = np.random.default_rng(0), 4, 0.1
    shapes = [(4, 3, 3, 3), (4, 3, 3, 3), (8, 5, 1, 1)]
    start = [rng.standard_normal(shape) for shape in shapes]
    gradients = [[rng.standard_normal(shape) for _ in range(steps)] for shape in shapes]
    weights = [nn.Parameter(torch.tensor(w).contiguous(memory_format=layout)) for w in start]
    strides = [w.stride() for w in weights]
    optim = OptimConfig(momentum=momentum)
    optimisers = optimisers_of([Group(weights, "muon", rate, 0.0)], optim)
    for step in range(steps):
        for weight, its_own in zip(weights, gradients, strict=True):
            weight.grad = torch.from_numpy(its_own[step])
        optimisers.step(torch.tensor(step))
    rates = [rate * math.cos(optim.cosine * math.pi * step / optimisers.total) for step in range(steps)]
    for weight, first, its_own, stride in zip(weights, start, gradients, strides, strict=True):
        flat = [g.reshape(len(g), -1) for g in its_own]
        expected = by_formula(first.reshape(len(first), -1), flat, momentum, rates)
        np.testing.assert_allclose(weight.detach().numpy().reshape(expected.shape), expected, rtol=1e-6, atol=1e-6)
        assert weight.stride() == stride


def test_a_gradient_of_zeros_or_none_moves_nothing() -> None:
    weights = [nn.Parameter(torch.randn(4, 2, 3, 3)) for _ in range(2)]
    before = [w.detach().clone() for w in weights]
    weights[0].grad = torch.zeros_like(weights[0])
    optimisers_of([Group(weights, "muon", 0.1, 0.0)]).step(torch.tensor(1))
    torch.testing.assert_close(weights[0].detach(), before[0])
    assert torch.equal(weights[1], before[1])


def test_muon_trains_convolutions_alone_and_none_that_start_at_zero() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 1), nn.Flatten(), nn.Linear(16, 2))
    zeros: Tensor = network[2].weight  # type: ignore[assignment]
    nn.init.zeros_(zeros)
    names = {id(p): name for name, p in network.named_parameters()}

    def of_rule(optim: OptimConfig, rule: str) -> set[str]:
        groups = sgd_groups(network.parameters(), optim)
        return {names[id(p)] for group in groups if group.rule == rule for p in group.params}

    assert of_rule(OptimConfig(), "muon") == set()
    assert of_rule(OptimConfig(muon=0.01), "muon") == {"0.weight"}
    assert of_rule(OptimConfig(muon=0.01), "sgd") == set(names.values()) - {"0.weight"}


def test_a_step_goes_on_from_a_checkpoint_bit_for_bit(tiny_config: Config) -> None:
    config = tiny_config.replace(device="cpu", optim=dataclasses.replace(tiny_config.optim, muon=0.01))
    whole, half, again = stepped(config, 6), stepped(config, 3), stepped(config, 0)
    saved = {name: value.clone() for name, value in half.step.state().items()}
    assert sum(name.startswith("optimiser/muon.momentum_buffer.") for name in saved) > 2
    again.step.load(saved, 3)
    for _ in range(3):
        again.step()
    expected, got = whole.step.state(), again.step.state()
    assert expected.keys() == got.keys()
    assert all(torch.equal(value, got[name]) for name, value in expected.items())


def test_muon_without_convolutions_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "x.npz", x=rng.standard_normal((40, 4)), y=np.arange(40) % 2)
    out = tmp_path / "run"
    assert main(["train", "--data", str(tmp_path / "x.npz"), "--optim.muon", "0.01", "--out", str(out)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "optim.muon is 0.01, but method 'normatch' gives Muon nothing to train with backbone 'mlp'" in line
    assert not out.exists()
