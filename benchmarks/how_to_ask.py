"""Digits, half of whose labels a short first network asks for: in the package's way, in others, and in two instalments.

python benchmarks/how_to_ask.py trains twelve seeds of each and writes benchmarks/results/digits-how-to-ask.json.
"""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from many_runs import DIGITS, write_all
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from which_labels import Indices, add, each_class, labelled_run, then_suggested

from normatch import recipes
from normatch.data import Corpus
from normatch.data.selected import Selected
from normatch.nets.inference import features
from normatch.nets.weights import load_model
from normatch.training.job import open_corpus, with_test_set
from normatch.training.rounds import SHARE
from normatch.training.run import Run

RESULTS = Path(__file__).parent / "results" / "digits-how-to-ask.json"
SEEDS = range(400, 412)


def seen(corpus: Corpus, run: Run) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Of each digit the direction of its features, and the network's doubt."""
    model = load_model(run.path).eval()
    z = features(model, Selected.of(corpus.train.inputs))
    with torch.no_grad():
        doubt = 1 - model.head(z).double().softmax(1).amax(1).numpy()
    x = z.double().numpy()
    return x / np.linalg.norm(x, axis=1, keepdims=True), doubt


def finer(corpus: Corpus, run: Run, first: Indices, more: int, seed: int) -> Indices:
    """As the package does, but of twice as many kinds: of those without a label the ones that are most in doubt."""
    x, doubt = seen(corpus, run)
    count = 2 * (len(first) + more)
    k_means = KMeans(count, n_init=4, random_state=seed).fit(x)
    kind = k_means.labels_
    total = np.bincount(kind, doubt, minlength=count)
    free = np.setdiff1d(kind, kind[first])
    best = free[np.argsort(-total[free], kind="stable")][:more]
    distance = np.linalg.norm(x - k_means.cluster_centers_[kind], axis=1)
    return np.array([np.flatnonzero(kind == one)[distance[kind == one].argmin()] for one in best])


def covering(corpus: Corpus, run: Run, first: Indices, more: int, seed: int, in_doubt: bool) -> Indices:
    """One after the other what brings all digits, or those in doubt, nearest to a labelled one (facility location)."""
    x, doubt = seen(corpus, run)
    worth = doubt if in_doubt else np.ones(len(x))
    alike = x @ x.T
    nearest, chosen = alike[first].max(0), list[int]()
    for _ in range(more):
        gain = np.maximum(alike - nearest, 0) @ worth
        gain[[*first, *chosen]] = -1
        chosen.append(int(gain.argmax()))
        nearest = np.maximum(nearest, alike[chosen[-1]])
    return np.array(chosen)


ASKING: dict[str, Callable[[Corpus, Run, Indices, int, int], Indices]] = {
    "kinds": then_suggested,
    "finer kinds": finer,
    "covering": partial(covering, in_doubt=False),
    "covering, in doubt": partial(covering, in_doubt=True),
}


def trained(task: tuple[int, int]) -> list[dict[str, Any]]:
    """The outcomes of each way with so many labels and this seed."""
    labels, seed = task
    config = recipes.digits(labels, seed)
    corpus = with_test_set(config, open_corpus(config))
    config = config.replace(test_share=0.0, labels=None, fold=0)
    short = config.replace(steps=config.steps // SHARE, epoch=config.epoch // SHARE, log_every=5)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def adviser(labelled: Indices) -> Run:
            run = labelled_run(short, corpus, labelled, folder / f"adviser-{len(labelled)}")
            assert run is not None  # each class has a label from the start
            return run

        add(rows, "chance", config, corpus, each_class(corpus, labels, seed), folder)
        first = each_class(corpus, labels // 2, seed)
        run = adviser(first)
        for way, ask in ASKING.items():
            both = np.union1d(first, ask(corpus, run, first, labels - len(first), seed))
            add(rows, way, config, corpus, both, folder)
        some = np.union1d(first, then_suggested(corpus, run, first, labels // 4, seed))
        rest = then_suggested(corpus, adviser(some), some, labels - len(some), seed)
        add(rows, "kinds, twice", config, corpus, np.union1d(some, rest), folder)
    return rows


if __name__ == "__main__":
    write_all(RESULTS, DIGITS, trained, (20,), SEEDS)
