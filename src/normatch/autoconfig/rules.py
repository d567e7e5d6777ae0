"""The rules by which the settings that a user left open are chosen, each with its reason."""

import contextlib
import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from normatch.config import Config
from normatch.data import Corpus, Split
from normatch.data.split import describe_ratio, label_counts, skewed, too_few
from normatch.errors import UserError
from normatch.methods import methods
from normatch.methods.parts.weak_to_strong import WeakToStrongSettings
from normatch.nets import SMALL, find_backbone, fitting_backbone, suitable_backbone
from normatch.text import counted

__all__ = [
    "EPOCHS",
    "Choices",
    "choose_alignment",
    "choose_batch",
    "choose_epoch",
    "choose_momentum",
    "choose_muon",
    "choose_network",
    "choose_passes",
    "choose_records",
    "choose_steps",
    "choose_test_share",
    "muon_rate",
]

HELD_OUT, ENOUGH = 0.2, 2000
"""Share of the labelled items held out for testing. Beyond ENOUGH test items the share shrinks; it is 0 if some class
has too few labelled items."""

LEAST_BATCH, LARGEST_BATCH = 8, {"cuda": 64, "cpu": 32}
"""Bounds of the batch: within them, the largest power of two that is no larger than the labelled set."""

RATIO = 7
"""Most unlabelled items per labelled one in a step (the value of the paper)."""

STEPS = {"cuda": 4096, "cpu": 1024}
"""Training steps of a run without a time budget."""

EPOCHS = 32
"""Evaluations and checkpoints in a run."""

RECORDS = 16
"""Least number of lines of metrics in a run of at least that many steps: a chart of fewer points shows little."""

MOMENTA, LEARNT = (0.01, 0.1), 20
"""Bounds of batch norm's momentum; within them it is LEARNT / steps: the run is LEARNT averaging windows long."""

MUON, MUONS = 1.6, (0.01, 0.1)
"""Muon's learning rate times the square root of the steps, and its bounds: near what was best in runs of 256, 1,024
and 10,240 steps. Below 0.01 a run of 57,344 kept wrong pseudo-labels."""


class Choices:
    """A config under completion, and the choices made so far; fields that the user has fixed are never changed."""

    def __init__(self, config: Config, fixed: frozenset[str]) -> None:
        self.config, self.fixed = config, fixed
        self.made: list[tuple[str, str, str]] = []

    def set(self, name: str, value: Any, why: str, shown: str = "") -> None:
        """Choose a field; its name may be dotted, as in flags: ``settings.alignment``."""
        if name in self.fixed:
            return
        outer, _, inner = name.rpartition(".")
        changed = dataclasses.replace(getattr(self.config, outer), **{inner: value}) if outer else value
        self.config = self.config.replace(**{outer or inner: changed})
        self.made.append((name, shown or f"{value}", why))


def choose_network(choices: Choices, corpus: Corpus, device: str) -> None:
    shape = corpus.train.shape
    if corpus.facts is not None and choices.config.image_size is None and shape[1] == shape[2]:
        choices.set("image_size", shape[1], _size_reason(corpus.facts, shape[1], device))
    if choices.config.backbone == "auto":
        name = suitable_backbone(shape, quick=device == "cpu")
        dimensions = "×".join(map(str, shape))
        small = name != suitable_backbone(shape)
        why = f"fast without a GPU for items of {dimensions}" if small else f"suits items of {dimensions}"
        choices.set("backbone", name, why)
    else:
        fitting_backbone(choices.config.backbone, shape)


def choose_passes(choices: Choices) -> None:
    """Leave weak views out of the backward pass where method and network can: less time for the same accuracy."""
    settings = choices.config.settings
    if isinstance(settings, WeakToStrongSettings) and find_backbone(choices.config.backbone).partial:
        with contextlib.suppress(UserError):  # A method may need the gradients of weak views.
            dataclasses.replace(settings, passes="shared").check()
            choices.set("settings.passes", "shared", "no gradients for weakly augmented pictures, which is faster")


def _size_reason(facts: NDArray[Any], side: int, device: str) -> str:
    sides = np.minimum(facts["width"], facts["height"])
    if (facts["width"] == side).all() and (facts["height"] == side).all():
        return "the size of all images"
    seen = f"the shorter sides are {sides.min()} to {sides.max()} pixels, their median {np.median(sides):g}"
    return f"{seen}; no more than {SMALL} without a GPU" if device == "cpu" and side == SMALL else seen


def choose_test_share(choices: Choices, corpus: Corpus) -> None:
    if corpus.test is not None and corpus.is_testable:
        choices.set("test_share", 0.0, f"{len(corpus.test):,} test items are there already", "0")
        return
    counts = label_counts(corpus.train)
    labelled = sum(counts.values())
    why = too_few(counts) if labelled else "no item is labelled"
    if why is not None:
        choices.set("test_share", 0.0, why, "0")
        return
    share = min(HELD_OUT, max(0.01, round(ENOUGH / labelled, 2)))
    why = f"{math.ceil(labelled * share):,} of the {labelled:,} labelled items, to test on"
    if corpus.test is not None:
        why += f" in place of the {len(corpus.test):,} test items, which have no labels"
    choices.set("test_share", share, why)


def choose_alignment(choices: Choices, corpus: Corpus, split: Split) -> None:
    """Turn alignment off where the labels are skewed: most likely the items are too. Not if it is given."""
    counts = label_counts(corpus.train, split.labelled).values()
    aligned = getattr(choices.config.settings, "alignment", False)
    if aligned and "settings.alignment" not in choices.fixed and skewed(counts):
        why = (
            f"labels to learn from are {describe_ratio(counts)}, and alignment makes all classes equally frequent; "
            "--settings.alignment if the unlabelled items are balanced"
        )
        choices.set("settings.alignment", False, why, "off")


def choose_batch(choices: Choices, split: Split, device: str) -> None:
    labelled, unlabelled = len(split.labelled), len(split.unlabelled)
    batch = min(LARGEST_BATCH[device], max(LEAST_BATCH, 2 ** int(math.log2(max(1, labelled)))))
    choices.set("batch", batch, f"{labelled:,} labelled items to learn from")
    batch = choices.config.batch
    ratio = min(RATIO, max(1, unlabelled // batch))
    choices.set("ratio", ratio, f"unlabelled items per labelled one, drawn from {unlabelled:,}")


def choose_steps(choices: Choices, device: str) -> None:
    where = "on a GPU" if device == "cuda" else "without a GPU"
    choices.set("steps", STEPS[device], f"the default {where}; --minutes 10 fits them to your time")
    choose_epoch(choices, max(1, math.ceil(choices.config.steps / EPOCHS)))
    choose_records(choices)
    choose_momentum(choices)
    choose_muon(choices)


def choose_epoch(choices: Choices, epoch: int) -> None:
    config, epochs = choices.config, math.ceil(choices.config.steps / epoch)
    due = {"evaluation": config.evaluate_every, "checkpoint": config.checkpoint_every}
    what = [name for name, every in due.items() if every is None] or ["epoch"]
    choices.set("epoch", epoch, f"{epochs} {' and '.join(name if epochs == 1 else f'{name}s' for name in what)}")


def choose_records(choices: Choices) -> None:
    every = max(1, choices.config.steps // RECORDS)
    if every < choices.config.log_every:
        choices.set("log_every", every, f"for enough lines of metrics in {counted(choices.config.steps, 'step')}")


def choose_momentum(choices: Choices) -> None:
    """Choose batch norm's momentum: a short run needs fast-moving statistics, a long one can average longer."""
    momentum = min(MOMENTA[1], max(MOMENTA[0], round(LEARNT / choices.config.steps, 3)))
    choices.set("norm_momentum", momentum, f"batch norm averages over about {round(1 / momentum)} steps")


def choose_muon(choices: Choices) -> None:
    steps = choices.config.steps
    rate = muon_rate(choices.config.method, choices.config.backbone, steps)
    if rate:
        choices.set("optim.muon", rate, f"convolutions learn faster by it; for {counted(steps, 'step')}")


def muon_rate(method: str, backbone: str, steps: int) -> float:
    """Muon's learning rate for the convolutions of a network, 0 if it has none, or is not one for which it is chosen:
    pretrained weights such large steps would undo, and with others' networks it has not been tried. Nor is it chosen
    for a method that groups its parameters in its own way, which may leave it none."""
    if not find_backbone(backbone).muon or not methods.get(method).groups.__module__.startswith("normatch."):
        return 0.0
    return min(MUONS[1], max(MUONS[0], float(f"{MUON / math.sqrt(max(1, steps)):.2g}")))
