"""Distribution alignment against ten lines of NumPy."""

import numpy as np
import torch
from numpy.typing import NDArray

from normatch.methods.parts.alignment import Alignment
from tests.conftest import make_method


def numpy_alignment(batches: list[NDArray[np.float32]], memory: int) -> NDArray[np.float32]:
    """The last batch divided by the mean of the last ``memory`` batch means, renormalised."""
    means = [b.mean(0) for b in batches][-memory:]
    aligned: NDArray[np.float32] = batches[-1] / np.mean(means, axis=0)
    aligned /= aligned.sum(1, keepdims=True)
    return aligned


def test_equals_numpy_before_and_after_the_queue_is_full() -> None:
    rng = np.random.default_rng(0)
    batches = [rng.dirichlet(np.ones(5) * 0.3, size=8).astype(np.float32) for _ in range(9)]
    align = Alignment(classes=5, batches=4)
    for i in range(len(batches)):
        got = align(torch.from_numpy(batches[i])).numpy()
        np.testing.assert_allclose(got, numpy_alignment(batches[: i + 1], 4), rtol=2e-5)


def test_a_rare_class_is_divided_by_its_mean_however_small() -> None:
    batch = np.array([[1.5e-5, 1 - 1.5e-5], [0.5e-5, 1 - 0.5e-5]], np.float32)
    got = Alignment(classes=2, batches=1)(torch.from_numpy(batch)).numpy()
    np.testing.assert_allclose(got, numpy_alignment([batch], 1), rtol=2e-5)
    assert torch.isfinite(Alignment(2)(torch.tensor([[1.0, 0.0]]))).all(), "a class that was never predicted"


def test_a_method_remembers_32_batches() -> None:
    align = make_method("fixmatch", alignment=True).alignment
    assert isinstance(align, Alignment)
    assert align.queue.shape == (32, 3)
    assert not align(torch.tensor([[0.7, 0.2, 0.1]], requires_grad=True)).requires_grad
