"""One item of each kind, where a kind is a cluster of items whose features are alike."""

import warnings

import numpy as np
import torch
from numpy.typing import NDArray

from normatch.data.selected import Inputs, Selected
from normatch.nets.model import Model, features
from normatch.seeding import derive, sample

__all__ = ["MOST", "of_new_kinds", "one_of_each_kind"]

Indices = NDArray[np.int64]

MOST, MOST_LABELLED = 20_000, 5_000
"""Items without and with a label that are looked at; of more, so many are drawn by the seed."""

STARTS, FEW = 4, 200
"""k-means is started so often, and the closest clusters are taken; once for more than so FEW clusters, to save time."""


def of_new_kinds(
    model: Model, inputs: Inputs, labelled: Indices, free: Indices, count: int, seed: int
) -> tuple[Indices, list[int], list[float]]:
    """Of the ``free`` positions in ``inputs``, one of each kind that has no ``labelled`` one, those first of whose kind
    most are in doubt; how many are of its kind, and in doubt. What has features of a similar direction is of one kind.
    """
    labelled, free = _some(labelled, MOST_LABELLED, seed), _some(free, MOST, seed)
    places = np.concatenate([labelled, free])
    # Not copied: the inputs may be a memory-mapped file that is larger than the memory.
    z = features(model.eval(), Selected.of(inputs).at(places))
    with torch.no_grad():
        doubt = 1 - model.head(z).float().softmax(1).amax(1).cpu().numpy()
    x = z.cpu().numpy()
    directions = x / np.linalg.norm(x, axis=1, keepdims=True).clip(min=np.finfo(x.dtype).tiny)
    chosen, kinds = one_of_each_kind(directions, count, np.arange(len(labelled)), worth=doubt, seed=seed)
    return places[chosen], [len(kind) for kind in kinds], [float(doubt[kind].sum()) for kind in kinds]


def _some(positions: Indices, most: int, seed: int) -> Indices:
    return positions[sample(len(positions), most, seed, "suggest")]


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
    from threadpoolctl import threadpool_limits

    labelled = np.zeros(0, np.int64) if labelled is None else labelled
    clusters = min(len(labelled) + count, len(np.unique(x, axis=0)))
    starts = STARTS if clusters <= FEW else 1
    k_means = KMeans(clusters, n_init=starts, random_state=derive(seed, "kinds") % 2**32)
    # In several threads, sums depend on their number and timing, and with them what is chosen.
    with warnings.catch_warnings(), threadpool_limits(1):
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
