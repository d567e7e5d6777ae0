"""Reliability bins and temperatures against scikit-learn, scipy and a grid."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax
from sklearn.calibration import calibration_curve

from normatch.evaluate.calibration import COLDEST, HOTTEST, cross_fit, fit_temperature, mean_gap, reliability, soften


def problem(seed: int, n: int = 200, classes: int = 4, sharpness: float = 3.0) -> tuple[np.ndarray, np.ndarray]:
    """Logits that are ``sharpness`` times too sure, and labels drawn from what they should have said."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, classes)) * 2
    p = softmax(logits, axis=1)
    labels = (p.cumsum(1) > rng.random((n, 1))).argmax(1)
    return logits * sharpness, labels


@given(st.integers(0, 10_000), st.integers(1, 60), st.integers(1, 20))
def test_bins_equal_scikit_learns(seed: int, n: int, bins: int) -> None:
    rng = np.random.default_rng(seed)
    confidence, correct = rng.random(n), rng.random(n) < 0.5
    found = [b for b in reliability(confidence, correct, bins) if b.n]
    accuracy, mean = calibration_curve(correct, confidence, n_bins=bins)
    assert [b.accuracy for b in found] == pytest.approx(list(accuracy))
    assert [b.confidence for b in found] == pytest.approx(list(mean))
    assert sum(b.n for b in found) == n
    assert all(b.confidence is not None and b.low <= b.confidence < b.high for b in found)
    gaps = [b.n / n * abs(a - m) for b, a, m in zip(found, accuracy, mean, strict=True)]
    assert mean_gap(reliability(confidence, correct, bins)) == pytest.approx(sum(gaps))


def test_a_confidence_of_one_is_in_the_last_bin() -> None:
    bins = reliability(np.array([1.0, 1.0]), np.array([True, False]))
    assert [b.n for b in bins] == [0] * 14 + [2]
    assert (bins[-1].accuracy, bins[0].accuracy) == (0.5, None)


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.floats(0.3, 4))
def test_temperature_equals_scipys_minimum_and_beats_a_grid(seed: int, sharpness: float) -> None:
    logits, labels = problem(seed, sharpness=sharpness)

    def loss(temperature: float) -> float:
        return float(-log_softmax(logits / temperature, axis=1)[np.arange(len(labels)), labels].mean())

    found = fit_temperature(logits, labels)
    best = minimize_scalar(lambda t: loss(np.exp(t)), bounds=(-3, 3), method="bounded", options={"xatol": 1e-9})
    assert found == pytest.approx(float(np.exp(best.x)), rel=1e-3)
    assert loss(found) <= min(loss(t) for t in np.geomspace(COLDEST, HOTTEST, 60)) + 1e-12


def test_temperature_finds_how_much_too_sure_the_logits_are() -> None:
    logits, labels = problem(0, n=20_000, sharpness=3.0)
    assert fit_temperature(logits, labels) == pytest.approx(3.0, rel=0.05)


def test_temperature_stays_finite_where_log_loss_has_no_minimum() -> None:
    labels = np.arange(4)
    assert fit_temperature(np.eye(4), labels) == pytest.approx(COLDEST)
    assert fit_temperature(-np.eye(4), labels) == pytest.approx(HOTTEST)


@given(st.integers(0, 10_000))
def test_softening_is_softmax_of_scaled_logits(seed: int) -> None:
    logits = np.random.default_rng(seed).normal(size=(5, 3)) * 10_000
    np.testing.assert_allclose(soften(logits, 2.5), softmax(logits / 2.5, axis=1), atol=1e-15)


def test_cross_fitting_never_scores_an_item_at_a_temperature_it_helped_to_fit() -> None:
    logits, labels = problem(1)
    p, temperatures = cross_fit(logits, labels, seed=0)
    matches = np.stack([np.isclose(p, soften(logits, t)).all(1) for t in temperatures])
    assert (matches.sum(0) == 1).all()
    assert abs(int(matches[0].sum()) - 100) == 0
    for t, mine in zip(temperatures, matches, strict=True):
        assert fit_temperature(logits[~mine], labels[~mine]) == t
    assert cross_fit(logits, labels, seed=1)[1] != temperatures, "the seed decides the halves"


def test_scaling_mends_the_calibration_of_items_it_was_not_fitted_on() -> None:
    logits, labels = problem(2, n=4000)
    before, after = (
        mean_gap(reliability(p.max(1), p.argmax(1) == labels))
        for p in (soften(logits, 1.0), cross_fit(logits, labels, seed=0)[0])
    )
    assert after < before / 3
