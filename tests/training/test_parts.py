"""The engine's parts against NumPy and plain torch."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from normatch.config import Config
from normatch.data import Dataset, dataset
from normatch.errors import UserError
from normatch.methods import PseudoLabels
from normatch.methods.parts.groups import Group, OptimConfig
from normatch.training.ema import EMA
from normatch.training.job import _grey_levels, _statistics
from normatch.training.metrics import Meter, measure, pseudo_label_quality
from normatch.training.optim import Optimisers, cosine
from normatch.training.runtime import Runtime
from tests.conftest import make_method


@pytest.mark.parametrize("step", [0, 1, 500, 999, 1000])
def test_cosine(step: int) -> None:
    for angle in (0.0, 7 / 16, 0.5):
        expected = pytest.approx(math.cos(angle * math.pi * step / 1000), rel=1e-6, abs=1e-7)
        assert cosine(torch.tensor(step), 1000, angle).item() == expected


@pytest.mark.parametrize("channels", [1, 3])
def test_statistics_of_images_do_not_depend_on_how_they_are_counted(
    channels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = np.random.default_rng(0).integers(0, 256, (11, 4, 5, channels), dtype=np.uint8)
    whole = _grey_levels(images)
    for piece in (1, 4, 11, 100):
        monkeypatch.setattr(dataset, "PIECE", piece * images[0].nbytes)
        np.testing.assert_array_equal(_grey_levels(images), whole)
        np.testing.assert_array_equal(_grey_levels(dataset.Selected.of(images)), whole)
    mean, std = _statistics(Dataset(images, np.zeros(11, np.int64), ("a",)))
    np.testing.assert_allclose(mean, images.mean((0, 1, 2)), rtol=1e-12)
    np.testing.assert_allclose(std, images.std((0, 1, 2)), rtol=1e-12)


def optimisers_of(groups: list[Group], optim: OptimConfig | None = None) -> Optimisers:
    """Optimisers of ten steps, whose parameters are called p0, p1, … in the order of their groups."""
    names = {id(p): f"p{i}" for i, p in enumerate(p for group in groups for p in group.params)}
    return Optimisers(groups, names, optim or OptimConfig(), total=10, device=torch.device("cpu"))


def test_optimisers_follow_plain_torch() -> None:
    """SGD with Nesterov momentum, AdamW with clipping, both on the cosine, against torch's unfused loops."""
    torch.manual_seed(0)
    start = [torch.randn(4, 3), torch.randn(3)]
    ours, theirs = ([nn.Parameter(t.clone()) for t in start] for _ in range(2))
    groups = [Group([ours[0]], "sgd", 0.1, 0.01), Group([ours[1]], "adamw", 0.01, 0.02, clip=0.5)]
    optimisers = optimisers_of(groups, OptimConfig())
    sgd = torch.optim.SGD([theirs[0]], lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01, foreach=False)
    adamw = torch.optim.AdamW([theirs[1]], lr=0.01, weight_decay=0.02, foreach=False)
    for step in range(6):
        gradients = [torch.randn(4, 3), torch.randn(3) * 3]
        for params in (ours, theirs):
            for p, g in zip(params, gradients, strict=True):
                p.grad = g.clone()
        optimisers.step(torch.tensor(step))
        factor = math.cos(7 * math.pi / 16 * step / 10)
        assert theirs[1].grad is not None
        theirs[1].grad *= min(1.0, 0.5 / (theirs[1].grad.norm().item() + 1e-6))
        for optimiser, rate in ((sgd, 0.1), (adamw, 0.01)):
            optimiser.param_groups[0]["lr"] = rate * factor
            optimiser.step()
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other)


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
    optimisers.load(
        {name: tensor.clone() for name, tensor in optimisers.state().items()} | {"adamw.gradient.p1": torch.ones(2)}
    )
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
    assert {
        name for name, tensor in loaded.items() if tensor.shape == p.shape and tensor.stride() != p.stride()
    } == set()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in saved.items())
    assert sum(tensor.shape == p.shape for tensor in loaded.values()) == 4  # momentum, two moments, a gradient


def test_a_state_returns_to_its_parameters_in_whatever_order_they_are_grouped() -> None:
    params = [nn.Parameter(torch.full((2,), float(i))) for i in range(4)]
    names = {id(p): f"p{i}" for i, p in enumerate(params)}

    def grouped(order: list[int]) -> Optimisers:
        groups = [Group([params[i]], "sgd" if i < 2 else "adamw", 0.1, 0.0) for i in order]
        return Optimisers(groups, names, OptimConfig(), 10, torch.device("cpu"))

    optimisers = grouped([0, 1, 2, 3])
    for p in params[:3]:  # the last has no gradient yet
        p.grad = p.detach() + 1
    optimisers.step(torch.tensor(0))
    saved = {name: tensor.clone() for name, tensor in optimisers.state().items()}
    assert set(saved) == {
        *("sgd.momentum_buffer.p0", "sgd.momentum_buffer.p1"),
        *("adamw.step.p2", "adamw.exp_avg.p2", "adamw.exp_avg_sq.p2"),
    }
    other = grouped([3, 1, 2, 0])
    other.load(saved)
    torch.testing.assert_close(dict(sorted(other.state().items())), dict(sorted(saved.items())), rtol=0, atol=0)
    ended = []
    for each in (optimisers, other):
        with torch.no_grad():
            for i, p in enumerate(params):
                p.copy_(torch.full((2,), float(i)))
        each.step(torch.tensor(1))
        ended.append([p.tolist() for p in params])
    assert ended[0] == ended[1]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (
            lambda s: s | {"sgd.momentum_buffer.p2": s["sgd.momentum_buffer.p0"]},
            "no parameter has .*momentum_buffer.p2'",
        ),
        (lambda s: s | {"adamw.exp_avg.p0": s["sgd.momentum_buffer.p0"]}, "no parameter has .*'adamw.exp_avg.p0'"),
        (lambda s: {f"0.0.{name}": tensor for name, tensor in s.items()}, r"no parameter has .*'0\.0\."),
        (lambda s: {"gradient.0": s["sgd.momentum_buffer.p0"]}, "no parameter has .*'gradient.0'"),
        (
            lambda s: s | {"sgd.momentum_buffer.p0": torch.ones(3)},
            r"'sgd.momentum_buffer.p0' has shape \(3,\), its parameter \(2,\)",
        ),
        (
            lambda s: {"adamw.exp_avg.p1": s["adamw.exp_avg.p1"]},
            "the optimiser's state has no 'sgd.momentum_buffer.p0'",
        ),
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


@pytest.mark.parametrize("ramp", [False, True])
def test_average(ramp: bool) -> None:
    model = make_method("supervised").model
    average = EMA(model, 0.9, ramp)
    expected = {name: p.detach().clone() for name, p in model.named_parameters()}
    for step in range(4):
        with torch.no_grad():
            for p in model.parameters():
                p.add_(torch.randn_like(p))
            for b in model.buffers():
                b.add_(1)
        average.update(torch.tensor(step))
        decay = min(0.9, (1 + step) / (10 + step)) if ramp else 0.9
        expected = {n: decay * expected[n] + (1 - decay) * p.detach() for n, p in model.named_parameters()}
    for name, p in average.model.named_parameters():
        torch.testing.assert_close(p, expected[name])
        assert not p.requires_grad
    for mine, theirs in zip(average.model.buffers(), model.buffers(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
    assert not average.model.training


def test_curves_of_figures_3_and_4() -> None:
    """Eight pseudo-labels by hand; the truth of the last three is not known: one is just not above 0.95, one is trusted
    and above it, one is neither."""
    pseudo = PseudoLabels(
        label=torch.tensor([0, 1, 2, 0, 1, 2, 0, 1]),
        weight=torch.tensor([1.0, 1.0, 1.0, 0.5, 0.25, 0.75, 1.0, 0.5]),
        trusted=torch.tensor([True, True, True, False, False, False, True, False]),
        confidence=torch.tensor([0.99, 0.97, 0.6, 0.96, 0.5, 0.95, 0.98, 0.4]),
        auxiliary=torch.tensor([0.9, 0.8, 0.7, 0.5, 0.25, 0.75, 0.6, 0.3]),
    )
    curves = pseudo_label_quality(pseudo, torch.tensor([0, 1, 0, 0, 2, -1, -1, -1]), classes=4)
    total, count = curves.pop("pseudo/classes")
    assert (total / count).tolist() == pytest.approx([3 / 8, 3 / 8, 2 / 8, 0])
    got = {name: (total / count).item() for name, (total, count) in curves.items()}
    expected = {
        "pseudo/trusted": 4 / 8,
        "pseudo/confident": 4 / 8,
        "pseudo/correct": 3 / 5,
        "pseudo/accuracy_trusted": 2 / 3,
        "pseudo/accuracy_distrusted": 1 / 2,
        "pseudo/accuracy_confident": 3 / 3,
        "pseudo/weight": 6 / 8,
        "pseudo/weight_distrusted": 2 / 4,
        "pseudo/uncertainty": 1 - 6.35 / 8,
        "pseudo/uncertainty_auxiliary": 1 - 4.8 / 8,
    }
    assert got == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16, torch.float64])
def test_curves_are_exact_whatever_the_type_of_the_weights(dtype: torch.dtype) -> None:
    """A mask as weights, or beliefs of a network in bfloat16, in which 447 of 448 would be 448."""
    trusted = torch.arange(448) > 0
    pseudo = PseudoLabels(torch.zeros(448, dtype=torch.int64), trusted.to(dtype), trusted, trusted.float(), None)
    curves = pseudo_label_quality(pseudo, torch.zeros(448, dtype=torch.int64), classes=2)
    for name in ("trusted", "weight"):
        total, count = curves[f"pseudo/{name}"]
        assert (total.item(), count.item()) == (447, 448)
    assert curves["pseudo/weight_distrusted"][1].item() == 1


def test_meter_weighs_batches_by_their_counts_and_starts_anew() -> None:
    meter = Meter(torch.device("cpu"))
    rng = np.random.default_rng(0)
    values, counts = rng.normal(size=5), rng.integers(1, 9, size=5)
    for value, count in zip(values, counts, strict=True):
        nothing, n = torch.tensor(0.0), torch.tensor(float(count))
        shares = torch.tensor([1.0, 0.0, value]) * n
        means = {"a": (torch.tensor(value * count), n), "b": (nothing, nothing), "c": (shares, n.expand(3))}
        meter.add(measure(means))
    restored = Meter(torch.device("cpu"))
    restored.load(dict(sorted(meter.state().items(), reverse=True)))
    for m in (meter, restored):
        read = m.read()
        assert read["a"] == pytest.approx(np.average(values, weights=counts))
        assert read["b"] is None
        assert read["c"] == pytest.approx([1, 0, np.average(values, weights=counts)], abs=1e-6)
        assert m.read() == {"a": None, "b": None, "c": None}


def test_other_measurements_than_at_the_steps_before_are_named() -> None:
    one = (torch.ones(()), torch.ones(()))
    meter, resumed = Meter(torch.device("cpu")), Meter(torch.device("cpu"))
    meter.add(measure({"a": one, "b": one}))
    resumed.load(meter.state())
    for m in (meter, resumed):
        with pytest.raises(UserError, match=r"are a, c, at the steps before they were a, b: return the same") as error:
            m.add(measure({"a": one, "c": one}))
        assert "\n" not in str(error.value)
        with pytest.raises(UserError, match=r"are a, b, c, at the steps before they were a, b: return"):
            m.add(measure({"a": one, "b": one, "c": one}))


def test_what_is_not_finite_is_read_as_none() -> None:
    meter, one = Meter(torch.device("cpu")), torch.ones(())
    for value in (1.0, math.inf, 2.0):
        shares = (torch.tensor([0.5, math.nan]), one.expand(2))
        meter.add(measure({"loss": (torch.tensor(value), one), "shares": shares}))
    assert meter.read() == {"loss": None, "shares": None}


def test_the_callers_switches_are_put_back() -> None:
    runtime = Runtime.of(Config(device="cpu", deterministic=True))
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with runtime.scope():
            assert not torch.is_deterministic_algorithms_warn_only_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("precision", ["medium", "high", "highest"])
def test_matrix_products_are_exact_in_a_run_and_as_before_after_it(precision: str) -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        with Runtime.of(Config(device="cpu")).scope():
            assert torch.get_float32_matmul_precision() == "highest"
        assert torch.get_float32_matmul_precision() == precision
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.skipif(not hasattr(torch.backends.mkldnn, "matmul"), reason="torch has no such switch before 2.9")
def test_a_precision_set_for_one_library_alone_is_put_back() -> None:
    matmul: Any = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    matmul.fp32_precision = "tf32"
    try:
        with Runtime.of(Config(device="cpu")).scope():
            assert matmul.fp32_precision == "ieee"
        assert matmul.fp32_precision == "tf32"
    finally:
        matmul.fp32_precision = before
    assert torch.get_float32_matmul_precision() == "highest"
