"""What methods remember, and what they make of it: CoMatch, SimMatch and their parts against NumPy."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax

from normatch.methods.comatch import pseudo_label_graph
from normatch.methods.parts.memory import Queue, remember
from normatch.methods.parts.similarity import log_similarities, similarity_loss
from tests.conftest import make_batch, make_method

Floats = NDArray[np.float64]
rng = np.random.default_rng(0)


def made(name: str, **choices: object) -> Any:
    """A method whose predictions for the same random images differ visibly."""
    torch.manual_seed(0)
    method: Any = make_method(name, **choices).train()
    with torch.no_grad():
        method.model.head.weight.mul_(50)
    return method


def units(n: int, dim: int = 4) -> NDArray[np.float32]:
    x = rng.normal(size=(n, dim)).astype(np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return x


def numpy_of(x: torch.Tensor) -> Floats:
    return x.detach().double().numpy()


def test_of_an_image_that_occurs_twice_the_last_row_is_remembered() -> None:
    memory = torch.zeros(5, 2)
    remember(memory, torch.tensor([3, 1, 3, 0]), torch.arange(8.0).view(4, 2))
    assert memory.tolist() == [[6, 7], [2, 3], [0, 0], [4, 5], [0, 0]]


def test_queue_attends_to_the_last_rows_alone() -> None:
    queue, keys, values = Queue(5, 4, 2), np.zeros((0, 4)), np.zeros((0, 2))
    queries = units(3)
    assert queue.attend(torch.from_numpy(queries), 0.2).tolist() == [[0, 0]] * 3
    for n in (2, 2, 3, 7):
        new, value = units(n), rng.dirichlet([1, 1], size=n).astype(np.float32)
        queue.push(torch.from_numpy(new), torch.from_numpy(value))
        keys, values = np.concatenate([keys, new])[-5:], np.concatenate([values, value])[-5:]
        expected = softmax(queries @ keys.T / 0.2, 1) @ values
        np.testing.assert_allclose(queue.attend(torch.from_numpy(queries), 0.2).numpy(), expected, rtol=1e-4)


def test_similarity_loss_with_the_identity_is_info_nce() -> None:
    first, second = units(6), units(6)
    expected = torch.nn.functional.cross_entropy(torch.from_numpy(first @ second.T) / 0.2, torch.arange(6))
    similarities = log_similarities(torch.from_numpy(first), torch.from_numpy(second), 0.2)
    found = similarity_loss(similarities, torch.eye(6))
    torch.testing.assert_close(found, expected)


def test_keys_that_are_not_known_have_no_part() -> None:
    queries, keys, known = units(2), units(5), np.array([True, False, True, True, False])
    found = log_similarities(torch.from_numpy(queries), torch.from_numpy(keys), 0.1, torch.from_numpy(known)).exp()
    np.testing.assert_allclose(found.numpy()[:, known], softmax(queries @ keys[known].T / 0.1, 1), rtol=1e-4)
    assert not found[:, ~known].any()


def test_the_graph_of_pseudo_labels() -> None:
    """Of the paper: 1 to itself, the product of pseudo-labels that is at least T, else 0."""
    q = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.6, 0.4]])
    expected = np.array([[1, 0.9, 0, 0], [0.9, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    np.testing.assert_allclose(pseudo_label_graph(q, 0.8).numpy(), expected / expected.sum(1, keepdims=True), rtol=1e-6)


def test_comatch_equals_numpy_in_its_second_step() -> None:
    method = made("comatch", alignment=False, threshold=0.6, similarity=0.5).eval()
    batch = make_batch(method)
    weak, strong, other = (numpy_of(method.model.features(x)) for x in batch.unlabelled)
    embed = [numpy_of(method.projection(torch.from_numpy(z).float())) for z in (weak, strong, other)]
    of_labelled = numpy_of(method.projection(method.model.features(batch.labelled[0])))
    p, p_strong = (numpy_of(method.model(x).softmax(1)) for x in batch.unlabelled[:2])
    first, second = method(batch), method(batch)
    np.testing.assert_allclose(first.pseudo.confidence.numpy(), p.max(1), rtol=1e-4)

    keys, values = np.concatenate([embed[0], of_labelled]), np.concatenate([p, np.eye(3)[batch.labels]])
    q = 0.9 * p + 0.1 * softmax(embed[0] @ keys.T / 0.2, 1) @ values
    np.testing.assert_allclose(second.pseudo.confidence.numpy(), q.max(1), rtol=1e-4)
    np.testing.assert_allclose(method.queue.values[20:34], p, rtol=1e-4)  # those of the head are remembered
    used = q.max(1) >= 0.6
    expected = (used * -(q * np.log(p_strong)).sum(1)).mean()
    assert second.losses["unlabelled"].item() == pytest.approx(expected, rel=1e-4)
    assert 0 < used.sum() < len(q)
    graph = np.where(q @ q.T >= 0.5, q @ q.T, 0)
    np.fill_diagonal(graph, 1)
    graph /= graph.sum(1, keepdims=True)
    expected = -(graph * log_softmax(embed[1] @ embed[2].T / 0.2, 1)).sum(1).mean()
    assert second.losses["contrast"].item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("bank", ["ensemble", "teacher"])
def test_simmatch_equals_numpy(bank: str) -> None:
    """In the second step, with a labelled image that occurs twice and one that has not occurred."""
    method = made("simmatch", bank=bank, alignment=False, threshold=0.6).eval()
    batch = make_batch(method)
    positions = torch.tensor([0, 1, 2, 3, 4, 0])
    batch = batch._replace(labelled_positions=positions, labels=positions % 3)
    if bank == "teacher":
        with torch.no_grad():
            for weight in (*batch.teacher.parameters(), *batch.teacher_heads.parameters()):
                weight.mul_(1.1)
    network, head = (method.model, method.projection)
    if bank == "teacher":
        network, head = batch.teacher, batch.teacher_heads["projection"]
    method(batch)
    keys = numpy_of(method.embeddings)
    assert method.label.tolist() == [0, 1, 2, 0, 1, -1]
    outcome = method(batch)

    new = numpy_of(head(network.features(batch.labelled[0])))[[5, 1, 2, 3, 4]]
    np.testing.assert_allclose(keys[:5], new, rtol=1e-3, atol=1e-5)
    if bank == "ensemble":
        kept = 0.7 * keys[:5] + 0.3 * new
        keys[:5] = kept / np.linalg.norm(kept, axis=1, keepdims=True)
    p, weak = (numpy_of(x) for x in (network(batch.unlabelled[0]).softmax(1), network.features(batch.unlabelled[0])))
    q = softmax(numpy_of(head(torch.from_numpy(weak).float())) @ keys[:5].T / 0.1, 1)
    label = np.array([0, 1, 2, 0, 1])
    smoothed = 0.9 * p + 0.1 * q @ np.eye(3)[label]
    np.testing.assert_allclose(outcome.pseudo.confidence.numpy(), smoothed.max(1), rtol=1e-4)
    p_strong = numpy_of(method.model(batch.unlabelled[1]).softmax(1))
    expected = ((smoothed.max(1) >= 0.6) * -(smoothed * np.log(p_strong)).sum(1)).mean()
    assert outcome.losses["unlabelled"].item() == pytest.approx(expected, rel=1e-4)
    unfolded = q * p[:, label]
    unfolded /= unfolded.sum(1, keepdims=True)
    strong = numpy_of(method.projection(method.model.features(batch.unlabelled[1])))
    expected = -(unfolded * log_softmax(strong @ keys[:5].T / 0.1, 1)).sum(1).mean()
    assert outcome.losses["instances"].item() == pytest.approx(expected, rel=1e-4)


def test_simmatch_averages_an_embedding_over_the_epochs() -> None:
    method = made("simmatch").train()
    batch = make_batch(method)
    before = torch.nn.functional.normalize(torch.randn(6, 128), dim=1)
    method.embeddings.copy_(before)
    new = method.projection(method.embed(batch).labelled)
    method.update_bank(method.embed(batch), batch)
    expected = torch.nn.functional.normalize(0.7 * before + 0.3 * new, dim=1)
    torch.testing.assert_close(method.embeddings, expected)
