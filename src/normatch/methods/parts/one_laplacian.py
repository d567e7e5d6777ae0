"""Labels of least normalised 1-Laplacian energy on a graph: a flow of convex problems, each by primal-dual iterations.

With v_k (N,) the scores of class k and d the degrees, the energy is Σ_k J(v_k) / B_k(v_k), where

    J(v) = Σ_{i<j} W_ij |v_i − v_j|   and   B_k(v) = min_c Σ_i d_i |v_i − c|_λ   with |x|_λ = λ x if x > 0, else −x.

For scores of two values a class's quotient is a normalised cut: light edges between it and the rest, and neither of
them small. λ = (1 − π) / π, so that a class with the share π of the volume is as large as the rest (Bresson et al.,
NeurIPS 2013). Neither J nor B changes if a constant is added to v.
"""

from collections.abc import Callable

import numpy as np
from scipy import sparse

from normatch.methods.parts.graph import Floats, Graph, degrees

__all__ = ["Differences", "balance", "minimise_energy"]

PROBLEMS, ITERATIONS = 5, 20
"""Convex problems of the flow, and primal-dual iterations for each, which continue those of the last."""


class Differences:
    """The differences over the edges of a graph, and what they make of scores v (N, K)."""

    def __init__(self, graph: Graph) -> None:
        edges = sparse.triu(graph, 1, format="coo")
        n, m = graph.shape[0], edges.nnz
        self.degrees = degrees(graph)
        rows, nodes = np.tile(np.arange(m), 2), np.concatenate([edges.row, edges.col])
        signs = np.repeat(np.array([1, -1], dtype=np.float32), m)
        self._weights = edges.data[:, None]
        self._over_edges = sparse.csr_array((signs, (rows, nodes)), shape=(m, n))
        # The adjoint with the edges' weights, each node's divided by its degree: no step can then be too long.
        values = signs * np.tile(edges.data, 2) / self.degrees[nodes]
        self._back = sparse.csr_array((values, (nodes, rows)), shape=(n, m))

    def total(self, v: Floats) -> Floats:
        """J(v_k) (K,), the total variation of each class."""
        variations: Floats = (self._weights * np.abs(self._over_edges @ v)).sum(0)
        return variations

    def start(self, classes: int) -> Floats:
        """The dual variables (edges, K) of the first problem."""
        return np.zeros((len(self._weights), classes), dtype=np.float32)

    def shrink(
        self, towards: Floats, v: Floats, dual: Floats, allowed: Callable[[Floats], Floats], iterations: int
    ) -> tuple[Floats, Floats]:
        """argmin Σ_k J(v_k) + ½ Σ_i d_i (v_ik − b_ik)² over allowed v, from v and its dual, for ``towards`` b (N, K).

        The preconditioned primal-dual iterations of Pock and Chambolle (ICCV 2011); ``allowed`` projects on a convex
        set of rows.
        """
        ahead = v
        for _ in range(iterations):
            dual = np.clip(dual + 0.5 * (self._over_edges @ ahead), -1, 1, dtype=np.float32)
            before, v = v, allowed(0.5 * (v - self._back @ dual + towards))
            ahead = 2 * v - before
        return v, dual


def balance(v: Floats, d: Floats, ratio: Floats) -> tuple[Floats, Floats]:
    """B_k(v_k) (K,) for ``ratio`` λ (K,), and q (N, K) with B_k(v) = Σ_i d_i q_ik v_ik, a subgradient divided by d."""
    order = np.argsort(v, axis=0)
    volume = np.cumsum(d[order], axis=0)
    # The best c has 1 / (1 + λ) of the volume above it.
    at = (volume < volume[-1] * ratio / (1 + ratio)).sum(0).clip(max=len(v) - 1)
    middle = np.take_along_axis(v, np.take_along_axis(order, at[None], 0), 0)
    slope = np.where(v > middle, ratio, np.float32(-1))
    # Nodes at c have any slope from −1 to λ: that with which all sum to 0.
    on = v == middle
    slope = np.where(on, -(d @ np.where(on, 0, slope)) / (d @ on), slope)
    return (d[:, None] * slope * v).sum(0), slope


def minimise_energy(graph: Graph, sources: Floats, start: Floats, shares: Floats) -> Floats:
    """Scores v (N, K) of low energy from ``start`` (N, K), by the flow of Feld, Aujol, Gilboa and Papadakis (2019):

        v ← argmin Σ_k J(v_k) − E_k ⟨d q_k, v_k⟩ + ½ Σ_i d_i (v_ik − v⁰_ik)², then each v_k is scaled to its B_k

    with E_k = J / B_k and q_k a subgradient of B_k, both at the present v⁰. The scores of an unlabelled node sum to 0.
    A labelled one, whose row of ``sources`` (N, K) is one-hot, has 1 or more for its class and −1/(K − 1) or less for
    each other. ``shares`` (K,) are π.
    """
    differences = Differences(graph)
    d = differences.degrees
    classes, tiny = sources.shape[1], np.finfo(np.float32).tiny
    margin = (classes * sources - 1) / np.float32(classes - 1)
    labelled = sources.any(1, keepdims=True)
    shares = shares.clip(1e-3, 1 - 1e-3)  # a class without labels
    ratio = (1 - shares) / shares
    sizes = d.sum() * (1 - shares) * np.float32(classes / (classes - 1))

    def allowed(v: Floats) -> Floats:
        apart = np.where(sources > 0, np.maximum(v, margin), np.minimum(v, margin))
        projected: Floats = np.where(labelled, apart, v - v.mean(1, keepdims=True))
        return projected

    def scaled(v: Floats) -> Floats:
        return allowed(v * (sizes / np.maximum(balance(v, d, ratio)[0], tiny)))

    v, dual = scaled(allowed(start)), differences.start(classes)
    for _ in range(PROBLEMS):
        size, slope = balance(v, d, ratio)
        towards: Floats = v + differences.total(v) / np.maximum(size, tiny) * slope
        v, dual = differences.shrink(towards, v, dual, allowed, ITERATIONS)
        v = scaled(v)
    return v
