"""Runs of two rounds: a first network, which has some of the labels, suggests the others."""

import numpy as np
from numpy.typing import NDArray

from normatch.config import Config
from normatch.data import Corpus, Split
from normatch.device import device_of
from normatch.nets.weights import load_model
from normatch.seeding import permutation
from normatch.training.kinds import of_new_kinds
from normatch.training.run import Run

__all__ = ["CHOSEN", "FIRST", "SHARE", "drawn_labels", "first_round", "is_in_first_round", "labels_of_both"]

FIRST = "first"
"""Folder of the first network's run, in that of the run."""
CHOSEN = "chosen.json"
"""File in that folder: the items for whose labels the first network asked, and in how many seconds it chose them."""
SHARE = 7
"""The first network has a seventh of the steps."""
LINES = 20
"""Least number of its lines of metrics."""


def drawn_labels(config: Config) -> int:
    """The number of labels that are drawn, where others are suggested."""
    assert config.labels is not None  # Config.check
    return config.labels - config.suggested


def first_round(config: Config) -> Config:
    """The config of the first network: the drawn labels, and a seventh of steps, epoch and intervals."""

    intervals = ("steps", "epoch", "evaluate_every", "checkpoint_every")
    given = {name: steps for name in intervals if (steps := getattr(config, name)) is not None}
    shorter = {name: max(1, steps // SHARE) for name, steps in given.items()}
    return config.replace(
        name=f"{config.name}-{FIRST}",
        labels=drawn_labels(config),
        suggested=0,
        log_every=min(config.log_every, max(1, shorter["steps"] // LINES)),
        **shorter,
    )


def is_in_first_round(config: Config, split: Split) -> bool:
    """Whether this is the split of a run that lacks labels which are still to be suggested."""
    return config.suggested > 0 and len(split.labelled) == drawn_labels(config)


def labels_of_both(config: Config, first: Run, corpus: Corpus) -> NDArray[np.int64]:
    """The positions of all labels: those of the first network, and its suggestions, which chance completes if there are
    not as many different items."""
    labelled = first.split.labelled
    free = np.setdiff1d(first.split.unlabelled, labelled)
    model = load_model(first.path).to(device_of(config.device))
    more, *_ = of_new_kinds(model, corpus.train.inputs, labelled, free, config.suggested, config.seed)
    others = np.setdiff1d(free, more)
    by_chance = others[permutation(len(others), config.seed, "suggested")[: config.suggested - len(more)]]
    return np.union1d(labelled, np.concatenate([more, by_chance]))
