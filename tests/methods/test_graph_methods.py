"""Label propagation, LaplaceNet and CREPE against NumPy: what they keep of a graph, and what they make of it."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array

from normatch.errors import UserError
from normatch.methods import Embedding, methods
from normatch.methods.laplacenet import LaplaceNet, smoothly_aligned
from normatch.methods.parts.graph_labels import GraphLabels
from normatch.methods.parts.one_laplacian import minimise_energy
from tests.conftest import make_batch, make_method

LABELS = torch.arange(6) % 3


def clusters(seed: int = 0) -> tuple[Embedding, NDArray[np.int64]]:
    """Features in three directions, the classes, and the classes of the unlabelled ones."""
    draw = np.random.default_rng(seed)
    hidden = draw.integers(0, 3, 30)
    classes = np.concatenate([LABELS.numpy(), hidden])
    z = torch.from_numpy(np.eye(3)[classes] + 0.3 * draw.normal(size=(36, 3))).float()
    return Embedding(z[:6], LABELS, z[6:]), hidden


def begun(name: str, **choices: object) -> GraphLabels:
    torch.manual_seed(0)
    method = make_method(name, **choices)
    assert isinstance(method, GraphLabels)
    method.begin_epoch(1, lambda: clusters()[0])
    return method


@pytest.mark.parametrize("name", ["label-propagation", "laplacenet", "crepe"])
def test_clusters_are_found_and_the_first_epoch_is_supervised(name: str) -> None:
    method = make_method(name).train()
    assert isinstance(method, GraphLabels)
    method.begin_epoch(0, lambda: pytest.fail("no graph yet"))
    outcome = method(make_batch(method, step=0))
    assert outcome.losses["unlabelled"] == 0
    assert outcome.losses["labelled"] > 0
    assert outcome.pseudo is not None
    assert not outcome.pseudo.trusted.any()
    assert method.last_start == method.task.epoch

    found, hidden = clusters()
    method.begin_epoch(1, lambda: found)
    assert np.mean(method.spread_labels.argmax(1).numpy() == hidden) > 0.9
    torch.testing.assert_close(method.spread_labels.sum(1), torch.ones(30))
    assert method(make_batch(method)).losses["unlabelled"] > 0


SOURCES = np.concatenate([np.eye(3)[LABELS], np.zeros((30, 3))])


def graph_of_four(power: int) -> NDArray[np.float64]:
    """A_ij = cos(z_i, z_j)^power for the four nearest neighbours j of each image i."""
    z = torch.cat([clusters()[0].labelled, clusters()[0].unlabelled]).double().numpy()
    unit = z / np.linalg.norm(z, axis=1, keepdims=True)
    cosines = unit @ unit.T - 3 * np.eye(36)
    a = np.zeros((36, 36))
    for i, row in enumerate(cosines):
        nearest = np.argsort(-row)[:4]
        a[i, nearest] = np.maximum(row[nearest], 0) ** power
    return a


def spread(w: NDArray[np.float64]) -> NDArray[np.float64]:
    """(36, 3) probabilities, from the linear system."""
    s = w / np.sqrt(w.sum(1) * w.sum(1)[:, None])
    solved: NDArray[np.float64] = np.linalg.solve(np.eye(36) - 0.99 * s, SOURCES)
    solved /= solved.sum(1, keepdims=True)
    return solved


def test_graphs_of_laplacenet_and_crepe() -> None:
    """What is their own beside label propagation's graph, with the parts that have tests of their own."""
    prior = np.array([0.3, 0.5, 0.2], dtype=np.float32)
    w = np.maximum(graph_of_four(1), graph_of_four(1).T)
    expected = smoothly_aligned(spread(w)[6:], prior)
    np.testing.assert_allclose(begun("laplacenet", neighbours=4).spread_labels, expected, atol=1e-3)
    w = graph_of_four(3) + graph_of_four(3).T
    v = minimise_energy(csr_array(w.astype(np.float32)), SOURCES, spread(w).astype(np.float32), prior)[6:]
    expected = np.maximum(2 * v + 1, 0)
    expected /= expected.sum(1, keepdims=True)
    np.testing.assert_allclose(begun("crepe", neighbours=4).spread_labels, expected, atol=1e-2)


def test_label_propagation() -> None:
    method = begun("label-propagation", neighbours=4).eval()
    p = spread(graph_of_four(3) + graph_of_four(3).T)[6:]
    omega = 1 + (p * np.log(p)).sum(1) / np.log(3)
    counts = np.bincount(np.concatenate([LABELS, p.argmax(1)]))
    zeta = 36 / (3 * counts)
    np.testing.assert_allclose(method.spread_labels, p, atol=1e-3)
    np.testing.assert_allclose(method.certainty, omega, atol=1e-3)
    np.testing.assert_allclose(method.balance, zeta, rtol=1e-5)

    batch = make_batch(method)._replace(positions=torch.tensor([3, 3, 17, *range(11)]))
    at, label = batch.positions.numpy(), p.argmax(1)
    losses = method(batch).losses
    log_p = [
        method.model(view).log_softmax(1).detach().double().numpy() for view in (*batch.labelled, *batch.unlabelled)
    ]
    labelled = -log_p[0][np.arange(6), batch.labels]
    unlabelled = -log_p[1][np.arange(14), label[at]]
    assert losses["labelled"].item() == pytest.approx((zeta[batch.labels] * labelled).mean(), rel=1e-4)
    assert losses["unlabelled"].item() == pytest.approx((omega[at] * zeta[label[at]] * unlabelled).mean(), rel=1e-3)


def test_laplacenet_mixes_labelled_and_unlabelled_images() -> None:
    method = begun("laplacenet", samples=2).eval()
    batch = make_batch(method)
    torch.manual_seed(1)
    share, partner = method.embed(batch).mixing
    assert {bool(i < 6) for i in partner[:6]} == {True, False}
    torch.manual_seed(1)
    losses = method(batch).losses
    lam, order = share.item(), partner.numpy()
    y = np.concatenate([np.eye(3)[batch.labels], np.eye(3)[method.spread_labels.argmax(1)[:14]]])
    terms = []
    for labelled, unlabelled in zip(batch.labelled, batch.unlabelled, strict=True):
        x = torch.cat([labelled, unlabelled]).double().numpy()
        mixed = lam * x + (1 - lam) * x[order]
        log_p = method.model(torch.from_numpy(mixed)).log_softmax(1).detach().double().numpy()
        terms.append(-lam * (y * log_p).sum(1) - (1 - lam) * (y[order] * log_p).sum(1))
    assert sum(losses.values()).item() == pytest.approx(np.mean(terms), rel=1e-4)


def test_laplacenet_mixes_labelled_images_with_each_other_at_first() -> None:
    method = make_method("laplacenet")
    assert isinstance(method, LaplaceNet)
    _, partner = method.embed(make_batch(method, step=9)).mixing
    assert sorted(partner[:6].tolist()) == list(range(6))
    assert method.views.unlabelled == ("strong",) * 3
    assert make_method("laplacenet", consensus="nfc").views.unlabelled == ("strong", "strong", "strong", "weak")


def test_smooth_alignment_moves_classes_towards_their_shares() -> None:
    scores = np.random.default_rng(0).dirichlet([3, 2, 2], 500).astype(np.float32)
    shares = np.array([0.2, 0.3, 0.5], dtype=np.float32)
    aligned = smoothly_aligned(scores, shares)
    before, after = (np.bincount(p.argmax(1), minlength=3) / 500 for p in (scores, aligned))
    assert np.abs(before - shares).max() > 0.2
    np.testing.assert_allclose(after, shares, atol=0.02)
    factors = aligned / scores
    np.testing.assert_allclose(
        factors / factors[:, :1], np.broadcast_to(factors[0] / factors[0, 0], (500, 3)), rtol=1e-3
    )


def test_crepe_labels_are_certain_within_clusters() -> None:
    """Its scores are nearly constant where the quadratic energy's fade with the distance from labels."""
    sharp, smooth = (begun(name, neighbours=5).certainty.mean() for name in ("crepe", "label-propagation"))
    assert sharp > 0.8
    assert sharp > smooth + 0.2


def test_settings_that_cannot_be_are_refused() -> None:
    for name, setting, value in (
        ("crepe", "neighbours", 0),
        ("laplacenet", "alpha", 1.0),
        ("laplacenet", "samples", 0),
        ("label-propagation", "power", 0.0),
        ("label-propagation", "warm_up", -1),
    ):
        with pytest.raises(UserError, match=rf"settings\.{setting} is {value}: give a "):
            methods.get(name).Settings(**{setting: value}).check()
