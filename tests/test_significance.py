"""Intervals and the paired test against scipy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from normatch.significance import mcnemar, wilson_interval


@given(st.integers(1, 3000), st.data())
def test_wilson_interval_equals_scipys(n: int, data: st.DataObject) -> None:
    correct = data.draw(st.integers(0, n))
    expected = binomtest(correct, n).proportion_ci(method="wilson")
    low, high = wilson_interval(correct, n)
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert 0 <= low <= correct / n <= high <= 1


@given(st.integers(0, 10_000), st.integers(1, 400))
def test_mcnemar_equals_the_binomial_test_of_the_items_they_differ_on(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    first, second = rng.random(n) < 0.9, rng.random(n) < 0.7
    paired = mcnemar(first, second)
    assert paired.n == n
    assert paired.won - paired.lost == first.sum() - second.sum()
    differ = int((first != second).sum())
    assert paired.won + paired.lost == differ
    assert paired.p == pytest.approx(binomtest(paired.won, differ).pvalue if differ else 1.0)
    assert mcnemar(second, first).p == paired.p


def test_mcnemar_by_hand() -> None:
    first = np.array([True] * 5 + [False] * 3)
    assert mcnemar(first, np.zeros(8, dtype=bool)).p == 2 / 32
    assert mcnemar(first, first).p == 1


def test_many_items_do_not_overflow() -> None:
    first = np.arange(6_000) % 2 == 0
    assert mcnemar(first, ~first).p == 1
    assert mcnemar(first, np.zeros(6_000, dtype=bool)).p == 0
