"""Pseudo-labels and losses against ten lines of NumPy each, and eq. 3 by truth table."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from scipy.special import log_softmax

from normatch.methods import Method
from normatch.methods.parts.pseudo_labels import (
    AdaptiveWeights,
    Alignment,
    consensus_weights,
    labelled_loss,
    pseudo_loss,
    threshold_weights,
)
from tests.conftest import make_batch, make_method

Floats = NDArray[np.float64]
rng = np.random.default_rng(0)
LOGITS = rng.normal(size=(7, 4))
LABELS = rng.integers(0, 4, size=7)
TARGET = rng.dirichlet(np.ones(4), size=7)
WEIGHT = rng.uniform(size=7)


def test_losses_average_over_all_samples() -> None:
    """And half precision is computed in float32."""
    logits, labels, target, weight = (torch.from_numpy(x) for x in (LOGITS, LABELS, TARGET, WEIGHT))
    expected = -log_softmax(LOGITS, 1)[np.arange(7), LABELS].mean()
    np.testing.assert_allclose(labelled_loss(logits, labels).item(), expected, rtol=1e-6)
    expected = sum(WEIGHT[i] * -(TARGET[i] * log_softmax(LOGITS, 1)[i]).sum() for i in range(7)) / 7
    np.testing.assert_allclose(pseudo_loss(logits, target, weight).item(), expected, rtol=1e-6)
    half, target, weight = logits.bfloat16(), target.float(), weight.float()
    assert torch.equal(labelled_loss(half, labels), labelled_loss(half.float(), labels))
    assert torch.equal(pseudo_loss(half, target, weight), pseudo_loss(half.float(), target, weight))


def numpy_alignment(batches: list[NDArray[np.float32]], memory: int) -> NDArray[np.float32]:
    """The last batch divided by the mean of the last ``memory`` batch means, renormalised."""
    means = [b.mean(0) for b in batches][-memory:]
    aligned: NDArray[np.float32] = batches[-1] / np.mean(means, axis=0)
    aligned /= aligned.sum(1, keepdims=True)
    return aligned


def test_alignment_equals_numpy_before_and_after_its_queue_is_full() -> None:
    rng = np.random.default_rng(0)
    batches = [rng.dirichlet(np.ones(5) * 0.3, size=8).astype(np.float32) for _ in range(9)]
    align = Alignment(classes=5, batches=4)
    for i in range(len(batches)):
        got = align(torch.from_numpy(batches[i])).numpy()
        np.testing.assert_allclose(got, numpy_alignment(batches[: i + 1], 4), rtol=2e-5)


def test_alignment_to_shares_that_vary() -> None:
    """p · q / p̄, with q of the batch before q of the task."""
    rng = np.random.default_rng(0)
    align, means = Alignment(classes=3, batches=4, target=(0.2, 0.3, 0.5)), []
    for _ in range(6):
        p, q = rng.dirichlet(np.ones(3), 8).astype(np.float32), rng.dirichlet(np.ones(3)).astype(np.float32)
        means.append(p.mean(0))
        expected = p * q / np.mean(means[-4:], axis=0)
        got = align(torch.from_numpy(p), torch.from_numpy(q)).numpy()
        np.testing.assert_allclose(got, expected / expected.sum(1, keepdims=True), rtol=2e-5)


def test_a_rare_class_is_divided_by_its_mean_however_small() -> None:
    batch = np.array([[1.5e-5, 1 - 1.5e-5], [0.5e-5, 1 - 0.5e-5]], np.float32)
    got = Alignment(classes=2, batches=1)(torch.from_numpy(batch)).numpy()
    np.testing.assert_allclose(got, numpy_alignment([batch], 1), rtol=2e-5)
    assert torch.isfinite(Alignment(2)(torch.tensor([[1.0, 0.0]]))).all(), "a class that was never predicted"


def test_a_method_remembers_32_batches() -> None:
    align = make_method("fixmatch", alignment=True).alignment
    assert isinstance(align, Alignment)
    assert align.queue.shape == (32, 3)
    assert not align(torch.tensor([[0.7, 0.2, 0.1]], requires_grad=True)).requires_grad


TABLE = {
    "agreement without confidence": ([[0.51, 0.49]], [[[0.5001, 0.4999]]], 1.0, True),
    "disagreement, main less sure": ([[0.6, 0.4]], [[[0.2, 0.8]]], 0.6, False),
    "disagreement, flow less sure": ([[0.9, 0.1]], [[[0.3, 0.7]]], 0.7, False),
    "a tie names no class": ([[0.7, 0.3]], [[[0.5, 0.5]]], 0.5, False),
    "two ties do not agree": ([[0.5, 0.5]], [[[0.5, 0.5]]], 0.5, False),
    "a tie of others than the largest": ([[0.6, 0.2, 0.2]], [[[0.4, 0.3, 0.3]]], 1.0, True),
    "three agree": ([[0.6, 0.4]], [[[0.9, 0.1]], [[0.7, 0.3]]], 1.0, True),
    "last of three differs": ([[0.9, 0.1]], [[[0.8, 0.2]], [[0.45, 0.55]]], 0.55, False),
}


@pytest.mark.parametrize("case", TABLE)
def test_truth_table(case: str) -> None:
    main, others, least, agreed = TABLE[case]
    p, q = torch.tensor(main), [torch.tensor(o) for o in others]
    weight, agree = consensus_weights(p, q, "min")
    assert weight.item() == pytest.approx(least)
    assert agree.item() is agreed
    assert consensus_weights(p, q, "drop")[0].item() == float(agreed)


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


def test_fixmatch_trusts_what_reaches_its_threshold() -> None:
    p = torch.tensor([[0.95, 0.05], [0.94, 0.06], [0.02, 0.98]], dtype=torch.float64)
    assert threshold_weights(p, 0.95).tolist() == [1, 0, 1]

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
    weigh, mean, variance = AdaptiveWeights(8), 0.9, 0.05
    assert (weigh.mean.item(), weigh.variance.item()) == (1 / 8, 1.0)
    weigh.mean.fill_(mean)  # near its start nothing is far below the average
    weigh.variance.fill_(variance)
    for batch in batches.astype(np.float64):
        weights = weigh(torch.from_numpy(batch.astype(np.float32))).numpy()
        mean += 0.001 * (batch.mean() - mean)
        variance += 0.001 * (batch.var() - variance)
        below = np.minimum(batch - mean, 0)
        np.testing.assert_allclose(weights, np.exp(-(below**2) / (2 * variance / 4)), rtol=1e-4)


def test_adaptive_weights_are_full_where_all_are_equally_sure() -> None:
    weigh = AdaptiveWeights(4)
    weigh.mean.fill_(0.5)
    weigh.variance.zero_()
    assert weigh(torch.full((3,), 0.5)).tolist() == [1, 1, 1]
