"""The questions that every configuration of the normalizing flow classifier must answer."""

import copy
import doctest
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import normatch.flow
import normatch.flow.classifier
from normatch.errors import UserError
from normatch.flow import NormalizingFlowClassifier

# One line to add a configuration.
CONFIGS: dict[str, dict[str, Any]] = {
    "paper": {"dim": 128, "classes": 10},
    "published": {"dim": 128, "classes": 10, "means": "normal", "dropout": True},
    "plane": {"dim": 2, "classes": 3},
    "odd": {"dim": 5, "classes": 4, "means": "normal"},
    "odd-layers": {"dim": 7, "classes": 2, "layers": 3, "hidden": 16},
    "one-layer": {"dim": 3, "classes": 2, "layers": 1},
    "one-class": {"dim": 4, "classes": 1},
    "wide": {"dim": 64, "classes": 100, "layers": 4},
}


def build(name: str, seed: int = 0) -> NormalizingFlowClassifier:
    return NormalizingFlowClassifier(**CONFIGS[name], generator=torch.Generator().manual_seed(seed))


def perturb(module: nn.Module, scale: float = 0.3, seed: int = 1) -> None:
    """Away from the special point of the start: zero means, unit scales, equal weights."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype), alpha=scale)


@pytest.fixture(params=CONFIGS)
def flow(request: pytest.FixtureRequest) -> NormalizingFlowClassifier:
    return build(request.param).eval()


def features(flow: NormalizingFlowClassifier, n: int = 6, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(n, flow.dim, generator=torch.Generator().manual_seed(2))


def test_shapes(flow: NormalizingFlowClassifier) -> None:
    z = features(flow)
    latent, log_det = flow.transform(z)
    logits, log_prob = flow.evaluate(z)
    assert latent.shape == flow.inverse(latent).shape == z.shape
    assert log_det.shape == log_prob.shape == flow.log_prob(z).shape == (6,)
    for per_class in (logits, flow(z), flow.class_log_prob(z), flow.predict_proba(z)):
        assert per_class.shape == (6, flow.classes)
    assert flow.sample(3).shape == flow.sample(3, label=0).shape == (3, flow.dim)
    assert flow.sample(0).shape == (0, flow.dim)
    assert flow.log_prob(z[:0]).shape == (0,)


def test_the_quantities_agree(flow: NormalizingFlowClassifier) -> None:
    perturb(flow, 0.1)
    z = features(flow)
    logits, log_prob = flow.evaluate(z)
    torch.testing.assert_close(logits, flow(z))
    torch.testing.assert_close(log_prob, flow.log_prob(z))
    torch.testing.assert_close(logits.logsumexp(1) + flow.transform(z)[1], log_prob)
    torch.testing.assert_close(flow(z).softmax(1), flow.predict_proba(z))
    torch.testing.assert_close(flow.predict_proba(z).sum(1), torch.ones(6))


def test_inverse(flow: NormalizingFlowClassifier) -> None:
    z = features(flow, n=64)
    torch.testing.assert_close(flow.inverse(flow.transform(z)[0]), z, rtol=0, atol=1e-4)
    latent = features(flow, n=64)
    torch.testing.assert_close(flow.transform(flow.inverse(latent))[0], latent, rtol=0, atol=1e-4)


def test_log_determinant_is_that_of_autograd(flow: NormalizingFlowClassifier) -> None:
    flow = flow.double()
    perturb(flow, 0.1)
    z = features(flow, n=3).double()

    def latent_of(row: Tensor) -> Tensor:
        return flow.transform(row[None])[0][0]

    for row, log_det in zip(z, flow.transform(z)[1], strict=True):
        jacobian = torch.autograd.functional.jacobian(latent_of, row)
        torch.testing.assert_close(log_det, torch.linalg.slogdet(jacobian).logabsdet, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", CONFIGS)
def test_every_parameter_learns(name: str) -> None:
    flow = build(name)
    perturb(flow, 0.05)  # zero means and equal weights are stationary for a single class
    logits, log_prob = flow.evaluate(features(flow, n=32))
    labels = torch.arange(32) % flow.classes
    (nn.functional.cross_entropy(logits, labels) - log_prob.mean()).backward()
    for parameter_name, parameter in flow.named_parameters():
        if flow.classes == 1 and parameter_name == "mixture.weight_logits":
            continue  # the weight of the only class is 1 for ever
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name
        assert parameter.grad.abs().sum() > 0, parameter_name


def test_state_dict_round_trip(flow: NormalizingFlowClassifier) -> None:
    perturb(flow)
    other = copy.deepcopy(flow)
    perturb(other, seed=5)
    z = features(flow)
    assert not torch.equal(other.log_prob(z), flow.log_prob(z))
    other.load_state_dict(flow.state_dict())
    assert torch.equal(other.log_prob(z), flow.log_prob(z))
    assert torch.equal(other(z), flow(z))
    assert set(flow.state_dict()) == {name for name, _ in flow.named_parameters()}


@pytest.mark.parametrize("name", CONFIGS)
def test_the_generator_decides_the_start(name: str) -> None:
    before = torch.get_rng_state()
    first, again, other = build(name, 3), build(name, 3), build(name, 4)
    assert torch.equal(torch.get_rng_state(), before), "the global generator was used"
    for a, b in zip(first.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(first.couplings.layers[0].input.weight, other.couplings.layers[0].input.weight)  # type: ignore[union-attr,arg-type]


@pytest.mark.parametrize("size", [0.0, 1e-20, 1e4, 1e6])
def test_features_of_any_size_stay_finite(flow: NormalizingFlowClassifier, size: float) -> None:
    z = features(flow, n=16, scale=size).requires_grad_()
    logits, log_prob = flow.evaluate(z)
    assert logits.isfinite().all()
    assert log_prob.isfinite().all()
    loss = nn.functional.cross_entropy(logits, torch.arange(16) % flow.classes) - log_prob.mean()
    loss.backward()
    for tensor in (z, *flow.parameters()):
        assert tensor.grad is not None
        assert tensor.grad.isfinite().all()


@pytest.mark.parametrize("method", ["evaluate", "predict_proba", "transform"])
@pytest.mark.parametrize("name", ["paper", "published"])
def test_compiles_as_one_graph(name: str, method: str) -> None:
    flow = build(name)
    z = features(flow)
    call: Callable[[Tensor], Any] = getattr(flow, method)
    torch.compiler.reset()
    compiled = torch.compile(call, fullgraph=True, backend="eager")
    torch.manual_seed(0)
    expected = call(z)
    torch.manual_seed(0)
    torch.testing.assert_close(compiled(z), expected)
    assert compiled(torch.full_like(z, float("nan"))) is not None, "the check of values is left out of a compiled graph"


@pytest.mark.parametrize("method", ["log_prob", "class_log_prob", "predict_proba", "transform", "inverse"])
def test_non_finite_features_are_refused(flow: NormalizingFlowClassifier, method: str) -> None:
    z = features(flow)
    z[2, 0], z[4, 1], z[4, 0] = float("nan"), float("inf"), float("-inf")
    with pytest.raises(UserError, match=r"2 of 6 rows of the (features|latents) hold NaN or infinity.* row 2"):
        getattr(flow, method)(z)


@pytest.mark.parametrize("method", ["forward", "evaluate", "log_prob", "predict_proba", "transform", "inverse"])
def test_wrong_input_is_named(flow: NormalizingFlowClassifier, method: str) -> None:
    call = getattr(flow, method)
    with pytest.raises(UserError, match=rf"shape \(4, {flow.dim + 1}\), but this flow takes \(N, {flow.dim}\)"):
        call(torch.zeros(4, flow.dim + 1))
    with pytest.raises(UserError, match=rf"shape \({flow.dim},\)"):
        call(torch.zeros(flow.dim))


def test_autocast_computes_in_float32(flow: NormalizingFlowClassifier) -> None:
    def drawn() -> Tensor:
        return flow.sample(6, generator=torch.Generator().manual_seed(3))

    z = features(flow)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(flow(z), flow.eval()(z))
        inside = (*flow.evaluate(z), *flow.transform(z), flow.inverse(z), drawn())
        from_half = flow.evaluate(z.bfloat16())
    outside = (*flow.evaluate(z), *flow.transform(z), flow.inverse(z), drawn())
    for a, b in zip(inside, outside, strict=True):
        assert a.dtype == torch.float32
        assert torch.equal(a, b)
    for a, b in zip(from_half, flow.evaluate(z.bfloat16().float()), strict=True):
        assert a.dtype == torch.float32
        assert torch.equal(a, b)


@pytest.mark.parametrize("module", [normatch.flow, normatch.flow.classifier])
def test_examples_in_the_documentation(module: Any) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0
