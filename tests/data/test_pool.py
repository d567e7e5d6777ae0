"""The items on a device: as networks want them, gathered by position."""

import numpy as np
import pytest
import torch

from normatch.data.dataset import Dataset
from normatch.data.pool import Pool
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
