"""The items on a device or in host memory: as networks want them, gathered by position."""

from pathlib import Path

import numpy as np
import pytest
import torch

from normatch.data.dataset import Dataset
from normatch.data.pool import HostPool, Pool
from tests.data.original_formats import random_bytes


@pytest.mark.parametrize("channels", [1, 3])
def test_images(channels: int) -> None:
    dataset = Dataset(random_bytes(6, 4, 5, channels), np.arange(6), tuple("abcdef"))
    pool = Pool(dataset, "cpu")
    assert len(pool) == 6
    assert pool.inputs.shape == (6, channels, 4, 5) == (6, *dataset.shape)
    assert pool.inputs.dtype == torch.uint8
    assert pool.inputs.is_contiguous()
    assert pool.labels.dtype == torch.int64
    index = torch.tensor([5, 0, 0])
    np.testing.assert_array_equal(pool.gather(index).numpy(), dataset.inputs[index].transpose(0, 3, 1, 2))


def test_vectors_and_subsets() -> None:
    dataset = Dataset(np.arange(12, dtype=np.float32).reshape(6, 2), np.arange(6), tuple("abcdef"))
    pool = Pool(dataset)
    assert pool.inputs.dtype == torch.float32
    for indices in (np.array([4, 1]), torch.tensor([4, 1])):
        part = pool.subset(indices)
        assert len(part) == 2
        assert part.labels.tolist() == [4, 1]
        assert part.inputs.tolist() == [[8, 9], [2, 3]]
    assert len(pool) == 6


@pytest.mark.parametrize("shape", [(6, 4, 4, 1), (6, 4, 4, 3)])
def test_arrays_are_copied(shape: tuple[int, ...]) -> None:
    inputs, labels = random_bytes(*shape), np.zeros(6, np.int64)
    inputs.flags.writeable = labels.flags.writeable = False
    pool = Pool(Dataset(inputs, labels, ("a",)))
    before = inputs.copy()
    pool.inputs.zero_()
    pool.labels.fill_(7)
    np.testing.assert_array_equal(inputs, before)
    assert labels.max() == 0


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


def test_a_host_pool_of_strided_images_makes_them_contiguous_once() -> None:
    inputs = random_bytes(6, 3, 4, 5).transpose(0, 2, 3, 1)
    pool = HostPool(Dataset(inputs, np.zeros(6, np.int64), ("a",)))
    assert pool.inputs.array.flags.c_contiguous
    np.testing.assert_array_equal(pool.inputs.array, inputs)
