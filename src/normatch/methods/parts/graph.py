"""Nearest-neighbour graphs of features, and labels spread over them by their normalised Laplacian.

The search runs in torch on the features' device, a block of rows at a time; the sparse matrices are SciPy's, on the
host, where the methods call this once an epoch.
"""

from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

__all__ = ["Floats", "Graph", "degrees", "knn_graph", "nearest", "normalised", "propagate", "row_shares"]

Floats = NDArray[np.floating[Any]]
"""Arrays of float32, which is precise enough here and half as much to read."""
Graph = sparse.csr_array[Any, Any]
"""Symmetric weights (N, N) ≥ 0 with an empty diagonal."""

BLOCK = 2**26
"""The most cosines computed at once: 256 MB."""

TOLERANCE, MOST = 1e-5, 100
"""Conjugate gradients end when the residual is this share of the sources, or after this many products."""


def nearest(z: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The cosines (N, k) and the numbers (N, k) of the ``k`` others that are most similar to each of features (N, D).

    If there are fewer than k others, all of them.
    """
    z = F.normalize(z.float(), dim=1)
    n, k = len(z), min(k, len(z) - 1)
    cosines, others = [], []
    rows = max(1, BLOCK // n)
    for start in range(0, n, rows):
        block = z[start : start + rows] @ z.T
        block.diagonal(start).fill_(-2.0)  # less than any cosine: no image is its own neighbour
        found = block.topk(k, dim=1)
        cosines.append(found.values)
        others.append(found.indices)
    return torch.cat(cosines), torch.cat(others)


def knn_graph(z: Tensor, k: int, power: float, join: Literal["sum", "max"] = "sum") -> Graph:
    """W = A + Aᵀ, or the larger of both, with A_ij = max(cos(z_i, z_j), 0)^power if j is one of i's ``k`` nearest."""
    cosines, others = (found.cpu().numpy() for found in nearest(z, k))
    n, k = cosines.shape
    weights = np.maximum(cosines, 0) ** np.float32(power)
    directed = sparse.csr_array((weights.ravel(), others.ravel(), np.arange(n + 1) * k), shape=(n, n))
    graph = directed + directed.T if join == "sum" else directed.maximum(directed.T)
    return sparse.csr_array(graph)


def degrees(graph: Graph) -> Floats:
    """The sums of weights (N,); 1 for a node without neighbours, by which one may divide."""
    sums = np.asarray(graph.sum(1), dtype=np.float32)
    return np.where(sums > 0, sums, np.float32(1))


def normalised(graph: Graph) -> Graph:
    """S = D^−½ W D^−½; the normalised Laplacian is I − S."""
    scale = sparse.diags_array(degrees(graph) ** np.float32(-0.5))
    return sparse.csr_array(scale @ graph @ scale)


def propagate(graph: Graph, sources: Floats, alpha: float) -> Floats:
    """Z (N, K) that solves (I − α S) Z = Y for sources Y ≥ 0 (N, K): conjugate gradients, all columns at once.

    Z ≥ 0, so what is below 0 is the error of the iterations.

    (1 − α) Z minimises ½ Σ_ij W_ij ‖z_i/√d_i − z_j/√d_j‖² + (1/α − 1) Σ_i ‖z_i − y_i‖² (Zhou et al., NeurIPS 2003).
    """
    s = np.float32(alpha) * normalised(graph)
    z, residual, direction = np.zeros_like(sources), sources.copy(), sources.copy()
    size = _squares(residual, residual)
    enough, tiny = TOLERANCE**2 * size, np.finfo(np.float32).tiny
    for _ in range(MOST):
        if (size <= enough).all():
            break
        image = direction - s @ direction
        step = (size / np.maximum(_squares(direction, image), tiny)).astype(np.float32)
        z += step * direction
        residual -= step * image
        before, size = size, _squares(residual, residual)
        direction = residual + (size / np.maximum(before, tiny)).astype(np.float32) * direction
    return np.maximum(z, 0)


def row_shares(scores: Floats) -> Floats:
    """Scores ≥ 0 (N, K) divided by the sums of their rows; rows of zeros stay zeros."""
    sums = scores.sum(1, keepdims=True)
    shares: Floats = scores / np.where(sums > 0, sums, 1)
    return shares


def _squares(a: Floats, b: Floats) -> NDArray[np.float64]:
    """The inner products (K,) of the columns."""
    products: NDArray[np.float64] = np.einsum("nk,nk->k", a, b, dtype=np.float64)
    return products
