"""Metrics against scikit-learn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import confusion_matrix, log_loss, precision_recall_fscore_support

from normatch.evaluate import calibration_error, confusion, scores


def problem(seed: int, n: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(classes), size=n), rng.integers(0, classes, size=n)


@given(st.integers(0, 10_000), st.integers(1, 40), st.integers(2, 6))
def test_scores_equal_scikit_learns(seed: int, n: int, classes: int) -> None:
    p, labels = problem(seed, n, classes)
    report = scores(p, labels, tuple(map(str, range(classes))))
    guess = p.argmax(1)
    assert report["n"] == n
    assert report["accuracy"] == pytest.approx((guess == labels).mean())
    assert report["log_loss"] == pytest.approx(log_loss(labels, p, labels=range(classes)))
    expected = precision_recall_fscore_support(labels, guess, labels=range(classes), zero_division=0)
    for name, values in zip(("precision", "recall", "f1", "n"), expected, strict=True):
        assert [entry[name] for entry in report["per_class"]] == pytest.approx(list(values))
    np.testing.assert_array_equal(
        confusion(labels, guess, classes), confusion_matrix(labels, guess, labels=range(classes))
    )


def test_calibration_error_by_hand() -> None:
    # Three items at confidence 0.9, two of them right; one at 0.6, wrong: 3/4·|2/3 − 0.9| + 1/4·|0 − 0.6|.
    p = np.array([[0.9, 0.1]] * 3 + [[0.6, 0.4]])
    assert calibration_error(p, np.array([0, 0, 1, 1])) == pytest.approx(0.75 * (0.9 - 2 / 3) + 0.25 * 0.6)


def test_a_sure_and_right_model_is_calibrated() -> None:
    assert calibration_error(np.eye(3), np.arange(3)) == 0
