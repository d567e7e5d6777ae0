"""One of each kind: kinds that are apart are found, and no item is suggested that has a label."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from normatch.evaluate.kinds import one_of_each_kind

SIZES = (5, 30, 10, 20, 15)


@pytest.fixture(scope="module")
def blobs() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Kinds of different sizes, far apart, in a mixed order; and the kind of each item."""
    rng = np.random.default_rng(0)
    kind = rng.permutation(np.repeat(np.arange(len(SIZES)), SIZES))
    return (rng.normal(size=(len(kind), 3)) + 100 * np.eye(len(SIZES))[kind, :3] + 90 * kind[:, None]).astype(
        "f4"
    ), kind


def test_each_kind_has_one_in_its_middle(blobs: tuple[NDArray[np.float32], NDArray[np.int64]]) -> None:
    x, kind = blobs
    chosen, sizes = one_of_each_kind(x, len(SIZES))
    assert sizes.tolist() == sorted(SIZES, reverse=True)
    assert kind[chosen].tolist() == np.argsort(SIZES)[::-1].tolist()
    for position in chosen:
        members = np.flatnonzero(kind == kind[position])
        middle = x[members].mean(0)
        assert position == members[np.linalg.norm(x[members] - middle, axis=1).argmin()]


def test_kinds_with_a_label_need_none(blobs: tuple[NDArray[np.float32], NDArray[np.int64]]) -> None:
    x, kind = blobs
    labelled = np.array([np.flatnonzero(kind == k)[0] for k in (1, 2)])
    chosen, sizes = one_of_each_kind(x, 3, labelled)
    assert kind[chosen].tolist() == [3, 4, 0]
    assert sizes.tolist() == [20, 15, 5]


@settings(max_examples=60)
@given(
    points=st.lists(st.tuples(*[st.integers(-3, 3)] * 2), min_size=3, max_size=30),
    count=st.integers(1, 12),
    known=st.integers(0, 3),
    seed=st.integers(0, 5),
)
def test_what_is_chosen(points: list[tuple[int, int]], count: int, known: int, seed: int) -> None:
    x, labelled = np.array(points, np.float32), np.arange(known)
    chosen, sizes = one_of_each_kind(x, count, labelled, seed=seed)
    again = one_of_each_kind(x, count, labelled, seed=seed)
    assert [chosen.tolist(), sizes.tolist()] == [part.tolist() for part in again]
    assert len({points[i] for i in chosen}) == len(chosen) == len(sizes)
    assert not {points[i] for i in chosen} & set(points[:known])
    assert sizes.tolist() == sorted(sizes, reverse=True)
    assert sizes.sum() <= len(points) - known
    different = len(set(points))
    assert len(chosen) <= min(count, different - len(set(points[:known])))
    if different >= known + count:
        assert len(chosen) == count
