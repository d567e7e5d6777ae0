"""Nearest-neighbour graphs and what spreads over them, against scikit-learn, dense solves and enumeration."""

import itertools

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import optimize, sparse, stats
from sklearn.neighbors import kneighbors_graph
from sklearn.semi_supervised import LabelSpreading

from normatch.methods.parts import graph as graphs
from normatch.methods.parts.graph import knn_graph, nearest, normalised, propagate
from normatch.methods.parts.graph_labels import certainty
from normatch.methods.parts.one_laplacian import Differences, balance, minimise_energy

Array = NDArray[np.floating]


def features(n: int = 60, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, 4, generator=torch.Generator().manual_seed(seed))


def one_hot(n: int, classes: int = 3) -> Array:
    """The first 2 · classes nodes are labelled."""
    y = np.zeros((n, classes), dtype=np.float32)
    y[np.arange(2 * classes), np.arange(2 * classes) % classes] = 1
    return y


@pytest.mark.parametrize("block", [7 * 60, 2**26], ids=["in blocks of 7", "at once"])
@pytest.mark.parametrize("join", ["sum", "max"])
def test_graph_is_that_of_scikit_learn(block: int, join: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "BLOCK", block)
    z = features()
    chosen = kneighbors_graph(z.numpy(), 5, metric="cosine", include_self=False).toarray()
    unit = z.numpy() / np.linalg.norm(z.numpy(), axis=1, keepdims=True)
    directed = chosen * np.maximum(unit @ unit.T, 0) ** 3
    expected = directed + directed.T if join == "sum" else np.maximum(directed, directed.T)
    np.testing.assert_allclose(knn_graph(z, 5, 3.0, join).toarray(), expected, atol=1e-5)  # type: ignore[arg-type]


def test_neighbours_of_few_equal_or_empty_features() -> None:
    cosines, others = nearest(torch.ones(3, 2), 50)
    assert [sorted(row) for row in others.tolist()] == [[1, 2], [0, 2], [0, 1]]
    torch.testing.assert_close(cosines, torch.ones(3, 2))
    assert knn_graph(torch.zeros(3, 2), 2, 3.0).sum() == 0
    assert np.isfinite(propagate(knn_graph(torch.zeros(9, 2), 2, 3.0), one_hot(9), 0.99)).all()


def test_propagation_solves_the_linear_system() -> None:
    graph, y = knn_graph(features(), 5, 3.0), one_hot(60)
    y[:, 1] = 0  # a class without labels
    w = graph.toarray().astype(float)
    scale = w.sum(1) ** -0.5
    s = scale[:, None] * w * scale
    np.testing.assert_allclose(normalised(graph).toarray(), s, atol=1e-6)
    expected = np.linalg.solve(np.eye(60) - 0.99 * s, y)
    np.testing.assert_allclose(propagate(graph, y, 0.99), expected, rtol=1e-3, atol=1e-4 * expected.max())


def test_propagation_is_label_spreading() -> None:
    z, y = features(), one_hot(60)
    graph = knn_graph(z, 5, 3.0)
    labels = np.where(y.any(1), y.argmax(1), -1)
    model = LabelSpreading(kernel=lambda a, b: graph.toarray(), alpha=0.8, max_iter=500, tol=1e-9)
    expected = model.fit(z.numpy(), labels).label_distributions_
    np.testing.assert_allclose(graphs.row_shares(propagate(graph, y, 0.8)), expected, atol=1e-4)


def test_certainty_is_one_minus_relative_entropy() -> None:
    p = np.random.default_rng(0).dirichlet(np.ones(4), 9).astype(np.float32)
    p[0], p[1] = 0.25, [0, 1, 0, 0]
    np.testing.assert_allclose(certainty(p), 1 - stats.entropy(p, axis=1) / np.log(4), atol=1e-6)
    assert certainty(p)[:2].tolist() == [0, 1]


def test_total_variation_and_its_proximal_point() -> None:
    """Against the box-constrained dual problem, by a general solver."""
    graph = knn_graph(features(12), 3, 1.0)
    differences, d = Differences(graph), graphs.degrees(graph).astype(float)
    w = graph.toarray().astype(float)
    i, j = np.nonzero(np.triu(w))
    operator = np.zeros((len(i), 12))
    operator[np.arange(len(i)), i], operator[np.arange(len(i)), j] = w[i, j], -w[i, j]
    b = np.random.default_rng(0).normal(size=(12, 2)).astype(np.float32)
    np.testing.assert_allclose(differences.total(b), np.abs(operator @ b).sum(0), rtol=1e-5)
    found, _ = differences.shrink(b, b, differences.start(2), lambda v: v, 500)
    for k in range(2):

        def dual(p: Array, k: int = k) -> float:
            v = b[:, k] - operator.T @ p / d
            return float(0.5 * (d * v**2).sum())

        solved = optimize.minimize(dual, np.zeros(len(i)), bounds=[(-1, 1)] * len(i), method="L-BFGS-B", tol=1e-12)
        np.testing.assert_allclose(found[:, k], b[:, k] - operator.T @ solved.x / d, atol=1e-3)


def test_balance_is_the_least_asymmetric_distance_to_a_constant() -> None:
    draw = np.random.default_rng(0)
    v, d = draw.normal(size=(15, 2)).astype(np.float32), draw.uniform(0.5, 2, 15).astype(np.float32)
    v[3:6, 0] = v[0, 0]  # some are equal
    ratio = np.array([1.0, 4.0], dtype=np.float32)

    def distance(v: Array, k: int) -> float:
        x = v[:, k] - v[:, k][:, None]  # a best constant is one of the values
        return float((np.where(x > 0, ratio[k] * x, -x) * d).sum(1).min())

    size, slope = balance(v, d, ratio)
    assert size.tolist() == pytest.approx([distance(v, 0), distance(v, 1)], rel=1e-5)
    assert (d @ slope).tolist() == pytest.approx([0, 0], abs=1e-4)
    for other in draw.normal(size=(50, 15, 2)).astype(np.float32):
        gained = size + (d[:, None] * slope * (other - v)).sum(0)
        assert all(distance(other, k) >= gained[k] - 1e-4 for k in range(2)), "a subgradient"


def test_least_1_laplacian_energy_is_the_best_cut() -> None:
    """Two clusters joined by a few light edges, one label each: of all cuts between the labels, the least quotient."""
    draw = np.random.default_rng(3)
    w = np.triu(draw.uniform(0.05, 0.15, (10, 10)) * (draw.random((10, 10)) < 0.4), 1)
    w[:5, :5] += np.triu(draw.uniform(0.5, 1, (5, 5)), 1)
    w[5:, 5:] += np.triu(draw.uniform(0.5, 1, (5, 5)), 1)
    w = (w + w.T).astype(np.float32)
    graph = sparse.csr_array(w)
    y = np.zeros((10, 2), dtype=np.float32)
    y[0, 0] = y[9, 1] = 1
    d = w.sum(1)

    def quotient(side: Array) -> float:
        cut = w[side > 0][:, side <= 0].sum()
        return float(cut / min(d @ (side > 0), d @ (side <= 0)))

    cuts = [np.array([1, *middle, 0]) for middle in itertools.product([0, 1], repeat=8)]
    best = min(cuts, key=quotient)
    start = graphs.row_shares(propagate(graph, y, 0.5))
    halves = np.array([0.5, 0.5], dtype=np.float32)
    v = minimise_energy(graph, y, start, halves)
    assert (v[:, 0] > v[:, 1]).astype(int).tolist() == best.tolist()
    assert v[0, 0] >= 1
    assert v[0, 1] <= -1
    ones, differences = np.ones(2, dtype=np.float32), Differences(graph)
    energy, before = ((differences.total(x) / balance(x, d, ones)[0]).sum() for x in (v, start))
    assert energy < before
    assert energy == pytest.approx(2 * quotient(best), rel=0.2)
