"""Muon against its formula in NumPy, with singular values in the place of products of matrices."""

import dataclasses
import math
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
from normatch.methods.parts.groups import Group, OptimConfig, sgd_groups
from normatch.training.loop import Loop
from normatch.training.optim import COEFFICIENTS, ROUNDS, Optimisers, orthogonal
from tests.training.test_parts import optimisers_of
from tests.training.test_wiring import stepped

Matrix = NDArray[np.float64]


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


def test_rounds_take_singular_values_near_one() -> None:
    after = by_rounds(np.linspace(0.005, 1, 10_000))
    assert 0.68 < after.min() < after.max() < 1.16


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_may_stop(dtype: torch.dtype) -> None:
    """Momentum falls by a tenth in each step, until its squares are 0 in float32."""
    one = torch.randn(1, 4, 9, generator=torch.Generator().manual_seed(0)).to(dtype)
    for exponent in range(46):
        made = orthogonal(one * 10.0**-exponent)
        assert made.isfinite().all()
        assert made.abs().max() < 1.5
    weight = nn.Parameter(torch.ones(4, 1, 3, 3))
    optimisers = optimisers_of([Group([weight], "muon", 0.1, 0.0)], OptimConfig(momentum=0.9))
    for step in range(1200):
        weight.grad = one.float().view(4, 1, 3, 3) if step == 0 else torch.zeros_like(weight)
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


def test_a_step_moves_a_weight_by_its_share_and_keeps_its_length() -> None:
    weight = nn.Parameter(torch.randn(16, 8, 3, 3, dtype=torch.float64))
    before = weight.detach().clone()
    optimisers = optimisers_of([Group([weight], "muon", 0.01, 0.0)])
    weight.grad = torch.randn_like(weight)
    optimisers.step(torch.tensor(0))
    length = before.norm().item()
    assert weight.norm().item() == pytest.approx(length, rel=1e-12)
    assert (weight - before).norm().item() == pytest.approx(0.01 * length, rel=0.01)


def test_a_gradient_of_zeros_or_none_moves_nothing() -> None:
    weights = [nn.Parameter(torch.randn(4, 2, 3, 3)) for _ in range(2)]
    before = [w.detach().clone() for w in weights]
    optimisers = optimisers_of([Group(weights, "muon", 0.1, 0.0)])
    optimisers.step(torch.tensor(0))
    assert all(torch.equal(weight, first) for weight, first in zip(weights, before, strict=True))
    weights[0].grad = torch.zeros_like(weights[0])
    optimisers.step(torch.tensor(1))
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


def with_muon(config: Config) -> Config:
    return config.replace(optim=dataclasses.replace(config.optim, muon=0.01))


def test_a_run_goes_on_from_a_checkpoint_bit_for_bit(tiny_config: Config) -> None:
    def weights(loop: Loop) -> dict[str, Tensor]:
        return {name: value.clone() for name, value in loop.step.state().items()}

    config = with_muon(tiny_config.replace(device="cpu"))
    whole, half, again = stepped(config, 6), stepped(config, 3), stepped(config, 0)
    saved = weights(half)
    assert sum(name.startswith("optimiser/muon.momentum_buffer.") for name in saved) > 2
    again.step.load(saved, 3)
    for _ in range(3):
        again.step()
    assert weights(whole).keys() == weights(again).keys()
    assert all(torch.equal(value, weights(again)[name]) for name, value in weights(whole).items())


def test_a_state_without_momentum_is_named() -> None:
    weight = nn.Parameter(torch.randn(4, 2, 3, 3))

    def fresh() -> Optimisers:
        return optimisers_of([Group([weight], "muon", 0.1, 0.0)])

    with pytest.raises(ValueError, match=r"the optimiser's state has no 'muon.momentum_buffer.p0'"):
        fresh().load({})


def test_muon_without_convolutions_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "x.npz", x=rng.standard_normal((40, 4)), y=np.arange(40) % 2)
    out = tmp_path / "run"
    assert main(["train", "--data", str(tmp_path / "x.npz"), "--optim.muon", "0.01", "--out", str(out)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "optim.muon is 0.01, but method 'normatch' gives Muon nothing to train with backbone 'mlp'" in line
    assert not out.exists()
