"""Samples on a device or in host memory, gathered by position; and the order in which steps draw them."""

import mmap
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from normatch.data import pool as pools
from normatch.data.dataset import Dataset, Selected
from normatch.data.pool import HostPool, Pool, Stream
from normatch.seeding import permutation
from tests.data.original_formats import random_bytes


@pytest.mark.parametrize("kind", [Pool, HostPool])
def test_labels_are_not_shared_with_the_caller(kind: type[Pool | HostPool]) -> None:
    labels = np.zeros(6, np.int64)
    pool = kind(Dataset(random_bytes(6, 4, 4, 1), labels, tuple("abc")))
    labels[:] = 2
    assert pool.labels.tolist() == [0] * 6
    pool.labels.fill_(1)
    assert labels.tolist() == [2] * 6


def some_items(kind: str) -> Dataset:
    labels = np.array([3, 1, 4, 1, 5, -1])
    inputs = np.arange(12, dtype=np.float32).reshape(6, 2) if kind == "vectors" else random_bytes(6, 4, 5, int(kind))
    return Dataset(inputs, labels, tuple("abcdef"))


@pytest.mark.parametrize("kind", ["1", "3", "vectors"])
@pytest.mark.parametrize("size", [1, 4, 100])
def test_both_pools_hold_the_same_items(kind: str, size: int) -> None:
    device, host = Pool(some_items(kind)), HostPool(some_items(kind))
    for _ in range(3):
        assert (len(host), len(host.inputs), host.device) == (len(device), len(device.inputs), device.device)
        assert torch.equal(host.labels, device.labels)
        for theirs, ours in zip(device.inputs.split(size), host.inputs.split(size), strict=True):
            assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
            assert torch.equal(ours, theirs)
        # A subset, and a subset of that.
        device, host = device.subset(np.array([3, 0, 0, 2])), host.subset(torch.tensor([3, 0, 0, 2]))
    assert list(HostPool(some_items(kind)).subset(np.zeros(0, np.int64)).inputs.split(3)) == []


def test_a_host_pool_takes_rows_from_a_mapped_file_and_copies_nothing_else(tmp_path: Path) -> None:
    items = some_items("3")
    np.save(tmp_path / "images.npy", items.inputs)
    mapped = np.load(tmp_path / "images.npy", mmap_mode="r")
    pool = HostPool(Dataset(mapped, items.labels, items.classes))
    assert np.shares_memory(pool.inputs.array, mapped)
    assert np.shares_memory(pool.subset(np.array([4, 2])).inputs.array, mapped)
    out = np.zeros((2, 4, 5, 3), np.uint8)
    pool.subset(np.array([4, 2])).inputs.take(np.array([1, 0]), out)
    np.testing.assert_array_equal(out, items.inputs[[2, 4]])


def test_rows_of_a_mapped_file_are_asked_for_with_their_neighbours_once(tmp_path: Path) -> None:
    asked = []

    class Asked(mmap.mmap):
        def madvise(self, option: int, start: int = 0, length: int | None = None) -> None:
            asked.append((start, length))

    (tmp_path / "images").write_bytes(bytes(11_000))
    with (tmp_path / "images").open("rb") as file:
        rows = np.ndarray((10, 1000), np.uint8, buffer=Asked(file.fileno(), 0, access=mmap.ACCESS_READ), offset=1000)
        read = Selected(rows, np.arange(10)[::-1]).ahead(4)
        read(np.array([9, 8]))
        read(np.array([7, 0]))
    page = mmap.PAGESIZE
    assert asked == [(0, None), (0, 5000), (9000 // page * page, 11_000 - 9000 // page * page)]
    Selected(np.zeros((4, 2)), np.arange(4)).ahead(2)(np.arange(4))


def test_golden_values_of_a_stream() -> None:
    assert Stream(5, 3, seed=0, name="labelled").rows(0, 3).tolist() == [[2, 1, 0], [3, 4, 4], [3, 2, 1]]
    assert Stream(3, 7, seed=1, name="unlabelled").rows(10, 1).tolist() == [[2, 1, 0, 2, 1, 1, 0]]
    with large(block=2, lanes=4):
        assert Stream(11, 4, seed=0, name="unlabelled").rows(0, 3).tolist() == [
            [7, 1, 8, 4],
            [9, 6, 2, 5],
            [3, 10, 0, 7],
        ]


@contextmanager
def large(block: int, lanes: int) -> Iterator[None]:
    """All streams are of large data sets, read in blocks and lanes as small as these."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("LARGE", 0), ("BLOCK", block), ("LANES", lanes)):
            patch.setattr(pools, name, value)
        yield


BLOCKS, LANES = st.integers(1, 9), st.integers(1, 20)


@given(
    n=st.integers(1, 50),
    batch=st.integers(1, 70),
    seed=st.integers(0, 2**40),
    start=st.integers(0, 200),
    cuts=st.lists(st.integers(1, 6), min_size=1, max_size=6),
    by_blocks=st.none() | st.tuples(BLOCKS, LANES),
)
def test_rows_do_not_depend_on_how_they_are_asked_for(
    n: int, batch: int, seed: int, start: int, cuts: list[int], by_blocks: tuple[int, int] | None
) -> None:
    with large(*by_blocks) if by_blocks else nullcontext():
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


@given(n=st.integers(1, 60), batch=st.integers(1, 90), seed=st.integers(0, 1000), block=BLOCKS, lanes=LANES)
def test_a_large_data_set_is_drawn_once_an_epoch(n: int, batch: int, seed: int, block: int, lanes: int) -> None:
    with large(block, lanes):
        drawn = Stream(n, batch, seed, "x").rows(0, 2 * n).flatten().reshape(-1, n).numpy()
    for order in drawn:
        assert sorted(order) == list(range(n))


def test_a_large_data_set_sorted_by_class_is_shuffled() -> None:
    """Class shares vary from batch to batch as by drawing at random, and few blocks are open at a time."""
    n, batch, classes, turn = 200_000, 50, 10, 500
    with large(block=32, lanes=turn):
        drawn = Stream(n, batch, 0, "x").rows(0, n // batch).numpy()
        others = Stream(n, batch, 1, "x").rows(0, n // batch).numpy()
    assert (drawn != others).mean() > 0.99
    shares = (drawn * classes // n == 3).mean(1)
    assert shares.std() == pytest.approx((0.1 * 0.9 / batch) ** 0.5, rel=0.05)
    for first in range(0, len(drawn), 320):  # 32 turns, in which each lane draws from two blocks, and a few from three
        assert len(np.unique(drawn[first : first + 320] // 32)) < 3 * turn
    assert abs(np.corrcoef(np.arange(n), drawn.ravel())[0, 1]) < 0.02
