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


def test_truth_table() -> None:
    align = Alignment(classes=2, batches=1)
    p = torch.tensor([[0.9, 0.1], [0.7, 0.3]])
    # The batch mean is (0.8, 0.2): 0.9/0.8 to 0.1/0.2 is 9 to 4, and 0.7/0.8 to 0.3/0.2 is 7 to 12.
    torch.testing.assert_close(align(p), torch.tensor([[9 / 13, 4 / 13], [7 / 19, 12 / 19]]))


def test_a_uniform_batch_stays_as_it_is() -> None:
    p = torch.full((4, 10), 0.1)
    torch.testing.assert_close(Alignment(10)(p), p)


def test_a_rare_class_is_divided_by_its_mean_however_small() -> None:
    batch = np.array([[1.5e-5, 1 - 1.5e-5], [0.5e-5, 1 - 0.5e-5]], np.float32)
    got = Alignment(classes=2, batches=1)(torch.from_numpy(batch)).numpy()
    np.testing.assert_allclose(got, numpy_alignment([batch], 1), rtol=2e-5)
    np.testing.assert_allclose(got[:, 0], [0.6, 1 / 3], rtol=1e-3)


def test_a_class_that_was_never_predicted_gives_no_nan() -> None:
    p = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    assert torch.isfinite(Alignment(2)(p)).all()


def test_a_method_remembers_as_many_batches_as_it_is_told() -> None:
    for batches in (1, 5):
        align = make_method("fixmatch", alignment=True, alignment_batches=batches).alignment
        assert isinstance(align, Alignment)
        assert align.queue.shape == (batches, 3)


def test_nothing_is_learnt_through_it() -> None:
    align = Alignment(2)
    assert not align(torch.tensor([[0.7, 0.3]], requires_grad=True)).requires_grad
    assert not align.queue.requires_grad


def test_the_queue_is_part_of_the_state() -> None:
    first, second = Alignment(3, batches=2), Alignment(3, batches=2)
    p = torch.tensor([[0.5, 0.3, 0.2]])
    first(p)
    second.load_state_dict(first.state_dict())
    q = torch.tensor([[0.1, 0.2, 0.7]])
    torch.testing.assert_close(first(q), second(q), rtol=0, atol=0)
