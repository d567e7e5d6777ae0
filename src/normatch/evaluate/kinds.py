"""One item of each kind, where a kind is a cluster of items whose features are alike."""

import warnings

import numpy as np
from numpy.typing import NDArray

from normatch.seeding import derive

__all__ = ["one_of_each_kind"]

Indices = NDArray[np.int64]

STARTS, FEW = 4, 200
"""k-means is started so often, and the closest clusters are taken; once for more than so FEW clusters, to save time."""


def one_of_each_kind(
    x: NDArray[np.float32],
    count: int,
    labelled: Indices | None = None,
    *,
    worth: NDArray[np.float32] | None = None,
    seed: int = 0,
) -> tuple[Indices, list[Indices]]:
    """Up to ``count`` positions in ``x`` (N, D) that deserve a label, and for each those of all items of its kind.

    k-means makes as many clusters as there are ``labelled`` positions and ``count`` together, so at least ``count`` of
    them have no label. Of those the ones are taken whose items are ``worth`` most together (by default, the largest),
    in that order, each represented by the item nearest to its middle. There are fewer if there are not as many
    different items.
    """
    from sklearn.cluster import KMeans  # a second of import that only this needs
    from sklearn.exceptions import ConvergenceWarning

    labelled = np.zeros(0, np.int64) if labelled is None else labelled
    clusters = min(len(labelled) + count, len(np.unique(x, axis=0)))
    starts = STARTS if clusters <= FEW else 1
    k_means = KMeans(clusters, n_init=starts, random_state=derive(seed, "kinds") % 2**32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # different items that are equal to its rounding
        cluster = k_means.fit_predict(x)
    total = np.bincount(cluster, worth, minlength=clusters)
    unlabelled = np.setdiff1d(cluster, cluster[labelled])
    best = unlabelled[np.argsort(-total[unlabelled], kind="stable")][:count]
    kinds = [np.flatnonzero(cluster == one) for one in best]
    return np.array([_middle(x, kind) for kind in kinds], np.int64), kinds


def _middle(x: NDArray[np.float32], members: Indices) -> int:
    distances = np.linalg.norm(x[members] - x[members].mean(0), axis=1)
    return int(members[distances.argmin()])
