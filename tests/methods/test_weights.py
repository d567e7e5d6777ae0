"""NCUE (eq. 3), FixMatch's threshold and SoftMatch's weights by truth table, and against ten lines of NumPy."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from normatch.methods import Method
from normatch.methods.parts.weights import AdaptiveWeights, consensus_weights, threshold_weights
from tests.conftest import make_batch, make_method

Floats = NDArray[np.float64]

TABLE = {
    "agreement": ([[0.6, 0.4]], [[[0.9, 0.1]]], 1.0, 0.0, True),
    "agreement without confidence": ([[0.51, 0.49]], [[[0.5001, 0.4999]]], 1.0, 0.0, True),
    "disagreement, main less sure": ([[0.6, 0.4]], [[[0.2, 0.8]]], 0.6, 0.0, False),
    "disagreement, flow less sure": ([[0.9, 0.1]], [[[0.3, 0.7]]], 0.7, 0.0, False),
    "a tie names no class": ([[0.7, 0.3]], [[[0.5, 0.5]]], 0.5, 0.0, False),
    "a tie of the main one": ([[0.5, 0.5]], [[[0.3, 0.7]]], 0.5, 0.0, False),
    "two ties do not agree": ([[0.5, 0.5]], [[[0.5, 0.5]]], 0.5, 0.0, False),
    "a tie of others than the largest": ([[0.6, 0.2, 0.2]], [[[0.4, 0.3, 0.3]]], 1.0, 0.0, True),
    "three agree": ([[0.6, 0.4]], [[[0.9, 0.1]], [[0.7, 0.3]]], 1.0, 0.0, True),
    "first of three differs": ([[0.4, 0.6]], [[[0.9, 0.1]], [[0.7, 0.3]]], 0.6, 0.0, False),
    "second of three differs": ([[0.6, 0.4]], [[[0.2, 0.8]], [[0.9, 0.1]]], 0.6, 0.0, False),
    "last of three differs": ([[0.9, 0.1]], [[[0.8, 0.2]], [[0.45, 0.55]]], 0.55, 0.0, False),
    "three classes, all differ": ([[0.5, 0.3, 0.2]], [[[0.2, 0.6, 0.2]], [[0.1, 0.1, 0.8]]], 0.5, 0.0, False),
}


@pytest.mark.parametrize("case", TABLE)
def test_truth_table(case: str) -> None:
    main, others, least, dropped, agreed = TABLE[case]
    p, q = torch.tensor(main), [torch.tensor(o) for o in others]
    weight, agree = consensus_weights(p, q, "min")
    assert weight.item() == pytest.approx(least)
    assert agree.item() is agreed
    assert consensus_weights(p, q, "drop")[0].item() == pytest.approx(1.0 if agreed else dropped)


def numpy_consensus(ps: Floats) -> Floats:
    """Eq. 3 for classifiers ps (J, N, K), item by item."""
    weights = []
    for i in range(ps.shape[1]):
        named = {tuple(np.flatnonzero(p[i] == p[i].max())) for p in ps}
        agree = len(named) == 1 and len(named.pop()) == 1
        weights.append(1.0 if agree else min(float(p[i].max()) for p in ps))
    return np.array(weights)


def probabilities(classifiers: int) -> st.SearchStrategy[Floats]:
    shape = st.tuples(st.just(classifiers), st.integers(1, 6), st.integers(2, 5))
    return shape.flatmap(lambda s: arrays(np.float64, s, elements=st.floats(0.01, 1))).map(
        lambda x: x / x.sum(-1, keepdims=True)
    )


@pytest.mark.parametrize("classifiers", [2, 3])
def test_consensus_equals_numpy(classifiers: int) -> None:
    @given(probabilities(classifiers))
    def check(ps: Floats) -> None:
        main, *others = (torch.from_numpy(p) for p in ps)
        weight, agree = consensus_weights(main, others)
        np.testing.assert_allclose(weight.numpy(), numpy_consensus(ps))
        assert ((weight == 1) | ~agree).all()
        assert ((weight > 0) & (weight <= 1)).all()

    check()


def test_threshold() -> None:
    p = torch.tensor([[0.95, 0.05], [0.94, 0.06], [0.02, 0.98]], dtype=torch.float64)
    assert threshold_weights(p, 0.95).tolist() == [1, 0, 1]


def test_fixmatch_trusts_what_reaches_its_threshold() -> None:
    def fixmatch(threshold: float) -> Method:
        torch.manual_seed(0)
        return make_method("fixmatch", threshold=threshold).eval()

    batch = make_batch(fixmatch(0.5))
    confidence = fixmatch(0.5).model(batch.unlabelled[0]).softmax(1).amax(1).tolist()
    threshold = sorted(confidence)[len(confidence) // 2] - 1e-4
    pseudo = fixmatch(threshold)(batch).pseudo
    assert pseudo.trusted.tolist() == [c >= threshold for c in confidence]
    assert pseudo.weight.tolist() == pseudo.trusted.tolist()
    assert pseudo.confidence.tolist() == pytest.approx(confidence)


confidences = arrays(
    np.float32, st.tuples(st.integers(1, 4), st.integers(1, 6)), elements=st.floats(0.125, 1, width=32)
)


@given(confidences)
def test_adaptive_weights_equal_numpy_batch_after_batch(batches: NDArray[np.float32]) -> None:
    weigh, mean, variance = AdaptiveWeights(8), 1 / 8, 1.0
    for batch in batches.astype(np.float64):
        weights = weigh(torch.from_numpy(batch.astype(np.float32))).numpy()
        mean += 0.001 * (batch.mean() - mean)
        variance += 0.001 * (batch.var() - variance)
        below = np.minimum(batch - mean, 0)
        np.testing.assert_allclose(weights, np.exp(-(below**2) / (2 * variance / 4)), rtol=1e-4)


def test_adaptive_weights_are_full_from_the_mean_on_and_fall_below_it() -> None:
    weigh = AdaptiveWeights(10)
    weigh.mean.fill_(0.8)
    weigh.variance.fill_(0.04)
    weights = weigh(torch.tensor([0.3, 0.5, 0.7, 0.8, 0.9, 1.0]))
    assert (weights[:3].diff() > 0).all()
    assert weights[4:].tolist() == [1, 1]
    # Half a standard deviation below the mean is one of the Gaussian.
    assert weights[2].item() == pytest.approx(np.exp(-0.5), rel=0.02)


def test_adaptive_weights_are_full_where_all_are_equally_sure() -> None:
    weigh = AdaptiveWeights(4)
    weigh.mean.fill_(0.5)
    weigh.variance.zero_()
    assert weigh(torch.full((3,), 0.5)).tolist() == [1, 1, 1]


def test_normatch_multiplies_its_weights_by_the_adaptive_ones() -> None:
    def made(adaptive: bool) -> Method:
        torch.manual_seed(0)
        return make_method("normatch", pseudo_label="onehot", adaptive=adaptive).eval()

    batch, adaptive, weigh = make_batch(made(False)), made(True), AdaptiveWeights(3)
    assert isinstance(adaptive.adaptive, AdaptiveWeights)
    assert torch.equal(adaptive.adaptive.mean, weigh.mean), "that of three classes"
    for module in (weigh, adaptive.adaptive):
        module.mean.fill_(0.9)
        module.variance.fill_(0.5)
    plain, adapted = made(False)(batch), adaptive(batch)
    torch.testing.assert_close(adapted.pseudo.weight, plain.pseudo.weight * weigh(plain.pseudo.confidence))
    assert (adapted.pseudo.weight < plain.pseudo.weight).all()
    assert adapted.losses["unlabelled"] < plain.losses["unlabelled"]
    assert torch.equal(adapted.pseudo.trusted, plain.pseudo.trusted)


def test_what_the_adaptive_weights_have_seen_is_stored() -> None:
    method = make_method("normatch", pseudo_label="onehot", adaptive=True)
    before = {name: value.clone() for name, value in method.state_dict().items()}
    method(make_batch(method))
    stored = method.state_dict()
    for name in ("adaptive.mean", "adaptive.variance"):
        assert stored[name] != before[name]
