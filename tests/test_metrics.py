"""Metrics, reliability bins and temperatures against scikit-learn, scipy and a grid."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax
from sklearn.calibration import calibration_curve
from sklearn.metrics import confusion_matrix, log_loss, precision_recall_fscore_support

from normatch.metrics import (
    COLDEST,
    HOTTEST,
    LEAST_TO_FIT,
    agreement,
    calibration_error,
    confusion,
    cross_fit,
    fit_temperature,
    mean_gap,
    reliability,
    scores,
    soften,
    trusted_temperature,
)


def problem(seed: int, n: int = 200, classes: int = 4, sharpness: float = 3.0) -> tuple[np.ndarray, np.ndarray]:
    """Logits that are ``sharpness`` times too confident, and labels drawn from the right probabilities."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, classes)) * 2
    labels = (softmax(logits, axis=1).cumsum(1) > rng.random((n, 1))).argmax(1)
    return logits * sharpness, labels


@given(st.integers(0, 10_000), st.integers(1, 40), st.integers(2, 6))
def test_scores_equal_scikit_learns(seed: int, n: int, classes: int) -> None:
    rng = np.random.default_rng(seed)
    p, labels = rng.dirichlet(np.ones(classes), size=n), rng.integers(0, classes, size=n)
    report = scores(p, labels, tuple(map(str, range(classes))))
    predicted = p.argmax(1)
    assert report["n"] == n
    assert report["log_loss"] == pytest.approx(log_loss(labels, p, labels=range(classes)))
    expected = precision_recall_fscore_support(labels, predicted, labels=range(classes), zero_division=0)
    for name, values in zip(("precision", "recall", "f1", "n"), expected, strict=True):
        assert [entry[name] for entry in report["per_class"]] == pytest.approx(list(values))
    np.testing.assert_array_equal(
        confusion(labels, predicted, classes), confusion_matrix(labels, predicted, labels=range(classes))
    )
    # Macro averages, from the figures of each class: F1 of those that occur, recall of those with samples.
    occurs = [k for k in range(classes) if k in labels or k in predicted]
    assert report["accuracy"] == pytest.approx((predicted == labels).mean())
    assert report["macro_f1"] == pytest.approx(np.mean([report["per_class"][k]["f1"] for k in occurs]))
    recalls = [entry["recall"] for entry in report["per_class"] if entry["n"]]
    assert report["balanced_accuracy"] == pytest.approx(np.mean(recalls))


def test_who_predicts_no_class_agrees_with_nobody() -> None:
    p, q = np.array([[0.9, 0.1], [0.5, 0.5], [0.2, 0.8]]), np.array([[0.6, 0.4], [0.5, 0.5], [0.5, 0.5]])
    assert agreement(p, q).tolist() == [True, False, False]


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


def test_calibration_error_by_hand() -> None:
    # Three samples at confidence 0.9, two of them right; one at 0.6, wrong: 3/4·|2/3 − 0.9| + 1/4·|0 − 0.6|.
    p = np.array([[0.9, 0.1]] * 3 + [[0.6, 0.4]])
    assert calibration_error(p, np.array([0, 0, 1, 1])) == pytest.approx(0.75 * (0.9 - 2 / 3) + 0.25 * 0.6)
    assert calibration_error(np.eye(3), np.arange(3)) == 0
    bins = reliability(np.array([1.0, 1.0]), np.array([True, False]))
    assert [b.n for b in bins] == [0] * 14 + [2], "the last bin includes 1"
    assert (bins[-1].accuracy, bins[0].accuracy) == (0.5, None)


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.floats(0.3, 4))
def test_temperature_has_the_least_log_loss(seed: int, sharpness: float) -> None:
    logits, labels = problem(seed, sharpness=sharpness)

    def loss(temperature: float) -> float:
        return float(-log_softmax(logits / temperature, axis=1)[np.arange(len(labels)), labels].mean())

    found = fit_temperature(logits, labels)
    best = minimize_scalar(lambda t: loss(1 / t), bounds=(1 / HOTTEST, 1 / COLDEST), method="bounded")
    assert found == pytest.approx(1 / best.x, rel=1e-3)
    assert loss(found) <= min(loss(t) for t in np.geomspace(COLDEST, HOTTEST, 60)) + 1e-12


def test_a_temperature_is_used_only_if_the_samples_determine_it() -> None:
    logits, labels = problem(0, n=20_000)
    assert trusted_temperature(logits, labels) == fit_temperature(logits, labels) == pytest.approx(3.0, rel=0.05)
    assert trusted_temperature(logits[: LEAST_TO_FIT - 1], labels[: LEAST_TO_FIT - 1]) is None
    rows, right = np.eye(4)[np.arange(40) % 4], np.arange(40) % 4
    for logits, bound in ((rows, COLDEST), (-rows, HOTTEST)):
        assert fit_temperature(logits, right) == pytest.approx(bound, rel=1e-4)
        assert trusted_temperature(logits, right) is None


def test_cross_fitting_never_scores_a_sample_at_a_temperature_it_helped_to_fit() -> None:
    logits, labels = problem(1)
    p, temperatures = cross_fit(logits, labels, seed=0)
    matches = np.stack([np.isclose(p, soften(logits, t)).all(1) for t in temperatures])
    assert matches.sum(0).tolist() == [1] * 200
    assert matches.sum(1).tolist() == [100, 100]
    for t, mine in zip(temperatures, matches, strict=True):
        assert fit_temperature(logits[~mine], labels[~mine]) == t
    assert cross_fit(logits, labels, seed=1)[1] != temperatures, "the seed decides the halves"
