"""What the numbers must be: densities that integrate to 1, an independent flow with the same answers, and counts."""

import math
from collections.abc import Callable

import pytest
import torch
import zuko
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal

from normatch.errors import UserError
from normatch.flow import AffineCoupling, GaussianMixture, NormalizingFlowClassifier
from normatch.flow.mixture import SCALE_FLOOR


def random_flow(dim: int, classes: int, seed: int, layers: int = 6, scale: float = 0.3) -> NormalizingFlowClassifier:
    """A float64 flow whose every parameter is off its start."""
    generator = torch.Generator().manual_seed(seed)
    flow = NormalizingFlowClassifier(dim, classes, layers, means="normal", generator=generator).double().eval()
    with torch.no_grad():
        for parameter in flow.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64), alpha=scale)
    return flow


def mixture_distribution(mixture: GaussianMixture) -> MixtureSameFamily:
    """The same mixture from torch.distributions, from the raw parameters."""
    scales = torch.log1p(mixture.raw_scales.exp()) + SCALE_FLOOR
    components = Independent(Normal(mixture.means, scales[:, None].expand_as(mixture.means)), 1)
    return MixtureSameFamily(Categorical(logits=mixture.weight_logits), components)


def zuko_flow(flow: NormalizingFlowClassifier) -> zuko.distributions.NormalizingFlow:
    """The same density composed of zuko's transforms, in the masked form of the published code."""
    slope = 1e-6

    def coupling(layer: AffineCoupling) -> Callable[[Tensor], zuko.transforms.DependentTransform]:
        def meta(context: Tensor) -> zuko.transforms.DependentTransform:
            net = torch.nn.Sequential(layer.input, torch.nn.ReLU(), layer.middle, torch.nn.ReLU(), layer.output)
            out = net(context)
            free = out.shape[-1] // 2
            s = layer.gain * torch.tanh(out[..., free:])
            # zuko bounds its log-scale by a / (1 + |a / log slope|); this undoes that.
            a = s / (1 - (s / math.log(slope)).abs())
            affine = zuko.transforms.MonotonicAffineTransform(out[..., :free] * s.exp(), a, slope=slope)
            return zuko.transforms.DependentTransform(affine, 1)

        return meta

    first = torch.arange(flow.dim) < flow.dim // 2
    transforms = []
    for i, layer in enumerate(flow.couplings.layers):
        assert isinstance(layer, AffineCoupling)
        transforms.append(zuko.transforms.CouplingTransform(coupling(layer), first if i % 2 == 0 else ~first))
    return zuko.distributions.NormalizingFlow(
        zuko.transforms.ComposedTransform(*transforms), mixture_distribution(flow.mixture)
    )


@pytest.mark.parametrize(("dim", "classes", "layers"), [(5, 4, 6), (16, 10, 5), (128, 10, 6)])
def test_equals_the_same_flow_in_zuko(dim: int, classes: int, layers: int) -> None:
    flow = random_flow(dim, classes, seed=dim, layers=layers, scale=0.1)
    z = torch.randn(32, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = zuko_flow(flow).log_prob(z)
    torch.testing.assert_close(flow.log_prob(z), expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(flow.float().log_prob(z), expected.float(), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("means", ["zero", "normal"])
def test_mixture_starts_as_the_paper_says(means: str) -> None:
    mixture = GaussianMixture(128, 10, means, torch.Generator().manual_seed(0))  # type: ignore[arg-type]
    torch.testing.assert_close(mixture.scales, torch.ones(10))
    assert torch.equal(mixture.weight_logits, torch.ones(10))
    torch.testing.assert_close(mixture.log_weights.exp(), torch.full((10,), 0.1))
    if means == "zero":
        assert not mixture.means.any()
    else:
        assert float(mixture.means.detach().std()) == pytest.approx(1, abs=0.1)


def test_a_class_cannot_shrink_to_a_point() -> None:
    mixture = GaussianMixture(8, 2)
    with torch.no_grad():
        mixture.raw_scales.fill_(-1e4)
    far = mixture(torch.full((1, 8), 1e4))
    assert far.isfinite().all()
    assert mixture(torch.zeros(1, 8)).isfinite().all()
    assert mixture.scales.tolist() == pytest.approx([0.001, 0.001])


def test_weight_counts() -> None:
    """Half of the 0.08 M weights of the published code, whose masked layers read and map all 128 dimensions."""
    flow = NormalizingFlowClassifier(dim=128, classes=10)
    layer = (64 + 1) * 32 + (32 + 1) * 32 + (32 + 1) * 2 * 64 + 64
    assert sum(parameter.numel() for parameter in flow.couplings.parameters()) == 6 * layer == 44_544
    assert sum(parameter.numel() for parameter in flow.mixture.parameters()) == 10 * (128 + 2)


def test_initial_ranges_are_those_of_the_masked_layers() -> None:
    flow = NormalizingFlowClassifier(dim=128, classes=10, generator=torch.Generator().manual_seed(0))
    for layer in flow.couplings.layers:
        assert isinstance(layer, AffineCoupling)
        for linear, fan_in in ((layer.input, 128), (layer.middle, 32), (layer.output, 32)):
            bound = fan_in**-0.5
            assert 0.97 * bound < float(linear.weight.detach().abs().max()) <= bound
            assert 0.8 * bound < float(linear.bias.detach().abs().max()) <= bound
        assert torch.equal(layer.gain, torch.ones(64))


def test_samples_are_of_their_class() -> None:
    flow = NormalizingFlowClassifier(8, 4, means="normal", generator=torch.Generator().manual_seed(0)).eval()
    with torch.no_grad():
        flow.mixture.means.mul_(4)
        flow.mixture.weight_logits.copy_(torch.tensor([3.0, 1, 1, 1]))
    generator = torch.Generator().manual_seed(1)
    for label in range(4):
        predicted = flow.predict_proba(flow.sample(500, label, generator)).argmax(1)
        assert float((predicted == label).float().mean()) > 0.97
    shares = flow.predict_proba(flow.sample(4000, generator=generator)).argmax(1).bincount(minlength=4) / 4000
    torch.testing.assert_close(shares, flow.mixture.log_weights.exp().detach(), rtol=0, atol=0.03)
    first, again = (flow.sample(5, generator=torch.Generator().manual_seed(7)) for _ in range(2))
    assert torch.equal(first, again)
    assert not first.requires_grad


def test_samples_spread_by_the_scale_of_their_class() -> None:
    mixture = GaussianMixture(16, 2, "normal")
    with torch.no_grad():
        mixture.raw_scales.copy_(torch.tensor([0.25, 3.0]).expm1().log())
    labels = torch.arange(4000) % 2
    drawn = mixture.sample(labels, torch.Generator().manual_seed(0)) - mixture.means[labels]
    spread = [float(drawn[labels == label].std().detach()) for label in (0, 1)]
    assert spread == pytest.approx([0.25, 3.0], rel=0.03)
    assert drawn.detach().mean(0).abs().max() < 0.2


def test_impossible_flows_are_refused() -> None:
    with pytest.raises(UserError, match="dim is 1, but must be at least 2"):
        NormalizingFlowClassifier(1, 3)
    for name in ("classes", "layers", "hidden"):
        with pytest.raises(UserError, match=f"{name} of a normalizing flow classifier is 0"):
            NormalizingFlowClassifier(**{"dim": 4, "classes": 3, name: 0})  # type: ignore[arg-type]
    with pytest.raises(UserError, match="means 'random': choose from zero, normal"):
        NormalizingFlowClassifier(4, 3, means="random")  # type: ignore[arg-type]
    for label in (-1, 3):
        with pytest.raises(UserError, match=f"label {label} is not a class: choose from 0 to 2"):
            NormalizingFlowClassifier(2, 3).sample(1, label)


@given(
    dim=st.integers(2, 9),
    classes=st.integers(1, 5),
    layers=st.integers(1, 7),
    seed=st.integers(0, 2**16),
    size=st.sampled_from([0.1, 1.0, 10.0]),
)
@settings(max_examples=40)
def test_laws(dim: int, classes: int, layers: int, seed: int, size: float) -> None:
    flow = random_flow(dim, classes, seed, layers)
    z = size * torch.randn(4, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    latent, log_det = flow.transform(z)
    torch.testing.assert_close(flow.inverse(latent), z, rtol=1e-6, atol=1e-6)
    # The map of the inverse has the opposite log-determinant, and Bayes' rule holds.
    torch.testing.assert_close(flow.transform(flow.inverse(latent))[1], log_det, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(flow.predict_proba(z).sum(1), torch.ones(4, dtype=torch.float64))
    torch.testing.assert_close(flow.class_log_prob(z) + (flow.log_prob(z) - log_det)[:, None], flow(z))
    # Rows do not see each other.
    torch.testing.assert_close(flow.log_prob(z)[:1], flow.log_prob(z[:1]))


@given(
    offset=st.floats(-1e4, 1e4),
    spread=st.sampled_from([1.0, 1e2, 1e4]),
    near=st.booleans(),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=40)
def test_the_mixture_keeps_its_precision_far_from_the_origin(
    offset: float, spread: float, near: bool, seed: int
) -> None:
    """Float32 against float64 of the same numbers: the error is relative to the result, not to the features."""
    generator = torch.Generator().manual_seed(seed)
    mixture = GaussianMixture(32, 5)
    with torch.no_grad():
        mixture.means.copy_(offset + spread * torch.randn(5, 32, generator=generator))
    start = mixture.means.detach() if near else torch.full((5, 32), offset)
    latent = start + torch.randn(5, 32, generator=generator)
    got = mixture(latent)
    expected = mixture.double()(latent.double())
    torch.testing.assert_close(got.double(), expected, rtol=1e-5, atol=1e-5)


def test_dropout_acts_in_training_only_and_is_set_on_the_device() -> None:
    flow = NormalizingFlowClassifier(8, 3, dropout=True, generator=torch.Generator().manual_seed(0))
    z = torch.randn(64, 8)
    assert flow.dropout_rate is not None
    assert float(flow.dropout_rate) == 0.5
    assert not torch.equal(flow.evaluate(z)[1], flow.evaluate(z)[1])
    still = flow.eval().evaluate(z)[1]
    flow.train().dropout_rate.fill_(0.0)  # type: ignore[union-attr]
    assert torch.equal(flow.evaluate(z)[1], still)
    plain = NormalizingFlowClassifier(8, 3, generator=torch.Generator().manual_seed(0))
    before = torch.get_rng_state()
    assert torch.equal(plain.evaluate(z)[1], still)
    assert torch.equal(torch.get_rng_state(), before), "nothing random is drawn without dropout"


def test_dropout_keeps_the_mean_and_drops_its_share() -> None:
    layer = AffineCoupling(4, 4, hidden=4096, fan_in=4)
    with torch.no_grad():
        for linear in (layer.input, layer.middle, layer.output):
            linear.weight.zero_()
            linear.bias.zero_()
        layer.input.bias.fill_(1.0)
        layer.middle.weight[0] = 1 / 4096  # the mean of the hidden units
        layer.output.weight[:4, 0] = 1.0
    torch.manual_seed(0)
    moved, _ = layer(torch.zeros(16, 4), torch.zeros(16, 4), torch.tensor(0.25))
    assert float(moved.detach().mean()) == pytest.approx(1, abs=0.02)
    assert float(moved.detach().std()) > 0
