"""The questions that every configuration of the normalizing flow classifier must answer."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from normatch.errors import UserError
from normatch.flow import NormalizingFlowClassifier

# One line to add a configuration.
CONFIGS: dict[str, dict[str, Any]] = {
    "paper": {"dim": 128, "classes": 10},
    "published": {"dim": 128, "classes": 10, "means": "normal", "dropout": True},
    "plane": {"dim": 2, "classes": 3},
    "odd": {"dim": 5, "classes": 4, "means": "normal"},
    "odd-layers": {"dim": 7, "classes": 100, "layers": 3, "hidden": 16},
    "one-class": {"dim": 4, "classes": 1},
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


def test_shapes_and_quantities_agree(flow: NormalizingFlowClassifier) -> None:
    perturb(flow, 0.1)
    z = features(flow)
    latent, log_det = flow.transform(z)
    logits, log_prob = flow.evaluate(z)
    assert latent.shape == z.shape
    assert log_det.shape == log_prob.shape == (6,)
    assert logits.shape == flow.class_log_prob(z).shape == (6, flow.classes)
    assert flow.sample(3).shape == flow.sample(3, label=0).shape == (3, flow.dim)
    assert flow.sample(0).shape == (0, flow.dim)
    assert flow.log_prob(z[:0]).shape == (0,)
    torch.testing.assert_close(logits, flow(z))
    torch.testing.assert_close(log_prob, flow.log_prob(z))
    torch.testing.assert_close(logits.logsumexp(1) + log_det, log_prob)
    torch.testing.assert_close(logits.softmax(1), flow.predict_proba(z))


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


@pytest.mark.parametrize("name", CONFIGS)
def test_the_generator_decides_the_start_and_the_state_is_whole(name: str) -> None:
    before = torch.get_rng_state()
    first, again, other = build(name, 3), build(name, 3), build(name, 4)
    assert torch.equal(torch.get_rng_state(), before), "the global generator was used"
    for a, b in zip(first.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)
    z = features(first)
    first.eval()
    assert not torch.equal(other.eval().log_prob(z), first.log_prob(z))
    other.load_state_dict(first.state_dict())
    assert torch.equal(other.log_prob(z), first.log_prob(z))
    assert torch.equal(other(z), first(z))
    assert set(first.state_dict()) == {name for name, _ in first.named_parameters()}


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


@pytest.mark.parametrize("name", ["paper", "published"])
def test_compiles_as_one_graph(name: str) -> None:
    flow = build(name)
    z = features(flow)
    torch.compiler.reset()
    compiled = torch.compile(flow.evaluate, fullgraph=True, backend="eager")
    torch.manual_seed(0)
    expected = flow.evaluate(z)
    torch.manual_seed(0)
    torch.testing.assert_close(compiled(z), expected)
    assert compiled(torch.full_like(z, float("nan"))) is not None, "the check of values is left out of a compiled graph"


@pytest.mark.parametrize("method", ["log_prob", "class_log_prob", "predict_proba", "transform", "inverse"])
def test_wrong_input_is_named(method: str) -> None:
    flow = build("plane")
    call, z = getattr(flow, method), features(flow)
    z[2, 0], z[4, 1], z[4, 0] = float("nan"), float("inf"), float("-inf")
    with pytest.raises(UserError, match=r"2 of 6 rows of the (features|latents) hold NaN or infinity.* row 2"):
        call(z)
    with pytest.raises(UserError, match=r"shape \(4, 3\), but this flow takes \(N, 2\)"):
        call(torch.zeros(4, 3))
    with pytest.raises(UserError, match=r"shape \(2,\)"):
        call(torch.zeros(2))


def test_autocast_computes_in_float32(flow: NormalizingFlowClassifier) -> None:
    def all_of(z: Tensor) -> tuple[Tensor, ...]:
        drawn = flow.sample(6, generator=torch.Generator().manual_seed(3))
        return (flow(z), *flow.evaluate(z), *flow.transform(z), flow.inverse(z), drawn)

    half = features(flow).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = all_of(half)
    for a, b in zip(inside, all_of(half.float()), strict=True):
        assert a.dtype == torch.float32
        assert torch.equal(a, b)
