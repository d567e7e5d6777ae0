"""What each step draws: every item once an epoch, and the same rows however they are asked for."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from normatch.data.stream import Stream
from normatch.errors import UserError
from normatch.seeding import permutation


def test_golden_values() -> None:
    assert Stream(5, 3, seed=0, name="labelled").rows(0, 3).tolist() == [[2, 1, 0], [3, 4, 4], [3, 2, 1]]
    assert Stream(3, 7, seed=1, name="unlabelled").rows(10, 1).tolist() == [[2, 1, 0, 2, 1, 1, 0]]


@given(
    n=st.integers(1, 50),
    batch=st.integers(1, 70),
    seed=st.integers(0, 2**40),
    start=st.integers(0, 200),
    cuts=st.lists(st.integers(1, 6), min_size=1, max_size=6),
)
def test_rows_do_not_depend_on_how_they_are_asked_for(
    n: int, batch: int, seed: int, start: int, cuts: list[int]
) -> None:
    count = sum(cuts)
    whole = Stream(n, batch, seed, "x").rows(start, count)
    assert whole.shape == (count, batch)
    assert whole.dtype == torch.int64
    stream = Stream(n, batch, seed, "x")
    parts = []
    for cut in cuts:
        parts.append(stream.rows(start, cut))
        start += cut
    assert torch.equal(torch.cat(parts), whole)
    # Backwards, with whatever is cached from before.
    assert torch.equal(stream.rows(start - count, count), whole)


@given(n=st.integers(1, 40), batch=st.integers(1, 90), seed=st.integers(0, 1000))
def test_every_epoch_is_a_permutation(n: int, batch: int, seed: int) -> None:
    drawn = Stream(n, batch, seed, "x").rows(0, 4 * n).flatten().reshape(-1, n).numpy()
    for epoch, order in enumerate(drawn):
        assert sorted(order) == list(range(n))
        np.testing.assert_array_equal(order, permutation(n, seed, "stream", "x", epoch))


def test_names_and_seeds_draw_differently() -> None:
    rows = [Stream(100, 10, seed, name).rows(0, 1).tolist() for seed in (0, 1) for name in ("labelled", "unlabelled")]
    assert len({str(row) for row in rows}) == 4


def test_the_caller_may_write_into_the_rows() -> None:
    stream = Stream(10, 5, 0, "x")
    first = stream.rows(0, 1).clone()
    stream.rows(0, 1).zero_()
    assert torch.equal(stream.rows(0, 1), first)


def test_no_rows() -> None:
    assert Stream(4, 2, 0, "x").rows(3, 0).shape == (0, 2)


@pytest.mark.parametrize(("n", "batch"), [(0, 4), (4, 0)])
def test_nothing_to_draw(n: int, batch: int) -> None:
    with pytest.raises(UserError, match="stream 'x'"):
        Stream(n, batch, 0, "x")
