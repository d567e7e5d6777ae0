"""Intervals and the paired test against formulas written out by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from normatch.significance import mcnemar, mean_interval, wilson_interval


@given(st.integers(1, 3000), st.data())
def test_the_ends_of_wilsons_interval_reject_the_share_at_1_96_standard_errors(n: int, data: st.DataObject) -> None:
    correct = data.draw(st.integers(0, n))
    low, high = wilson_interval(correct, n)
    assert 0 <= low <= correct / n <= high <= 1
    for end in (low, high):
        if 0 < end < 1:
            assert abs(correct / n - end) / math.sqrt(end * (1 - end) / n) == pytest.approx(1.959964, rel=1e-4)


def test_the_interval_of_a_mean_by_hand() -> None:
    half = 12.706204736 * math.sqrt(2) / math.sqrt(2)  # t of one degree of freedom, deviation √2 of 1 and 3
    assert mean_interval([1.0, 3.0]) == pytest.approx((2 - half, 2 + half))
    assert mean_interval([1.1, 1.1, 1.1]) == pytest.approx((1.1, 1.1))


@given(st.integers(0, 10_000), st.integers(1, 400))
def test_mcnemar_is_the_exact_binomial_test_of_the_samples_they_differ_on(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    first, second = rng.random(n) < 0.9, rng.random(n) < 0.7
    paired = mcnemar(first, second)
    differ = int((first != second).sum())
    assert (paired.n, paired.won + paired.lost) == (n, differ)
    assert paired.won - paired.lost == first.sum() - second.sum()
    tail = sum(math.comb(differ, k) for k in range(min(paired.won, paired.lost) + 1))
    assert paired.p == pytest.approx(min(1.0, 2 * tail / 2**differ))
    assert mcnemar(second, first).p == paired.p
