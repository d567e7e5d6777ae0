"""One of each kind: kinds that are apart are found, and no item is suggested that has a label."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from normatch.training.kinds import one_of_each_kind

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
    chosen, kinds = one_of_each_kind(x, len(SIZES))
    assert [len(members) for members in kinds] == sorted(SIZES, reverse=True)
    assert kind[chosen].tolist() == np.argsort(SIZES)[::-1].tolist()
    for position, members in zip(chosen, kinds, strict=True):
        assert members.tolist() == np.flatnonzero(kind == kind[position]).tolist()
        middle = x[members].mean(0)
        assert position == members[np.linalg.norm(x[members] - middle, axis=1).argmin()]


def test_kinds_with_a_label_need_none(blobs: tuple[NDArray[np.float32], NDArray[np.int64]]) -> None:
    x, kind = blobs
    labelled = np.array([np.flatnonzero(kind == k)[0] for k in (1, 2)])
    chosen, kinds = one_of_each_kind(x, 3, labelled)
    assert kind[chosen].tolist() == [3, 4, 0]
    assert [len(members) for members in kinds] == [20, 15, 5]


def test_kinds_of_the_most_worth_come_first(blobs: tuple[NDArray[np.float32], NDArray[np.int64]]) -> None:
    x, kind = blobs
    worth = np.array([0.5, 0.1, 0.0, 0.01, 0.3], np.float32)[kind]  # in all 2.5, 3, 0, 0.2, 4.5
    assert kind[one_of_each_kind(x, 5, worth=worth)[0]].tolist() == [4, 1, 0, 3, 2]


@settings(max_examples=60)
@given(
    points=st.lists(st.tuples(*[st.integers(-3, 3)] * 2), min_size=3, max_size=30),
    count=st.integers(1, 12),
    known=st.integers(0, 3),
    seed=st.integers(0, 5),
)
def test_what_is_chosen(points: list[tuple[int, int]], count: int, known: int, seed: int) -> None:
    x, labelled = np.array(points, np.float32), np.arange(known)
    chosen, kinds = one_of_each_kind(x, count, labelled, seed=seed)
    again, _ = one_of_each_kind(x, count, labelled, seed=seed)
    assert chosen.tolist() == again.tolist()
    sizes = [len(members) for members in kinds]
    assert sizes == sorted(sizes, reverse=True)
    together = [position for members in kinds for position in members]
    assert len(set(together)) == len(together)
    assert all(position in members for position, members in zip(chosen, kinds, strict=True))
    assert not {points[i] for i in together} & set(points[:known])
    different = len(set(points))
    assert len(chosen) <= min(count, different - len(set(points[:known])))
    if different >= known + count:
        assert len(chosen) == count
