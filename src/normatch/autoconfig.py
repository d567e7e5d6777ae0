"""Settings for a person's own data and minutes: a complete config, with the reason for each choice."""

import contextlib
import dataclasses
import math
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from normatch.augment import AugmentConfig
from normatch.config import Config, flat, must_be_config, to_json
from normatch.data import UNKNOWN, Corpus, Dataset, Reading, Split, sources
from normatch.data.folder import Listings, has_classes, say_ignored
from normatch.data.images import DEFAULT, SIZES, sizes_of
from normatch.data.inspect import describe_dark, doubtful_names
from normatch.data.load import find_listings, passed_over
from normatch.data.manifest import is_manifest
from normatch.data.split import describe_ratio, describe_skew, label_counts, skewed, too_few
from normatch.device import device_of
from normatch.errors import UserError
from normatch.methods import methods
from normatch.methods.parts.weak_to_strong import WeakToStrongSettings
from normatch.nets import PRETRAINED, SMALL, find_backbone, fitting_backbone, suitable_backbone
from normatch.nets.efficientnet_lite import installed_weights
from normatch.nets.frozen import FROZEN as FROZEN_FAMILY
from normatch.nets.frozen import TUNED as TUNED_FAMILY
from normatch.nets.frozen import plain_name
from normatch.nets.model import Model, read_spec
from normatch.nets.plain import HOG
from normatch.nets.with_hog import WITH_HOG
from normatch.recipes import own
from normatch.seeding import sample
from normatch.text import aligned, counted
from normatch.training.baselines import cross_validated
from normatch.training.bench import SPARE, Pace, embedding_pace, pace
from normatch.training.job import (
    draw,
    frozen_features,
    must_have_classes,
    open_corpus,
    prepare,
    untrained_start,
    with_test_set,
)
from normatch.training.run import Run
from normatch.training.train import run_folder

__all__ = ["Plan", "choose", "muon_rate", "plan", "side_to_embed"]

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

WORTH = 500
"""Least steps of fine-tuning for which time that is left is used without being asked."""

SPARED = 250
"""With so many labels, fine-tuning sets a fifth aside to choose between its start and its end by."""

CHOOSING = 500
"""The most labels by which features are chosen: two cores embed so many images in five seconds."""

STAGE = (
    *("steps", "epoch", "batch", "ratio", "optim", "ema", "ema_ramp", "norm_momentum", "augment"),
    *("log_every", "evaluate_every", "checkpoint_every"),
)
"""Config fields of one stage of training: what the user gives for them is for fine-tuning, if there is any."""

EPOCHS = 32
"""Evaluations and checkpoints in a run."""

RECORDS = 16
"""Least number of lines of metrics in a run of at least that many steps: a chart of fewer points shows little."""

MOMENTA, LEARNT = (0.01, 0.1), 20
"""Bounds of batch norm's momentum; within them it is LEARNT / steps: the run is LEARNT averaging windows long."""

MUON, MUONS = 1.6, (0.01, 0.1)
"""Muon's learning rate times the square root of the steps, and its bounds: near what was best in runs of 256, 1,024
and 10,240 steps. Below 0.01 a run of 57,344 kept wrong pseudo-labels."""

EVALUATING = 0.2
"""Largest share of a time budget to spend on evaluations."""

LEAST_STEPS = 100
"""Steps below which a run is a trial that learns little (38 % after 8 steps, once): its warnings begin there, too."""

YEAR = 365 * 24 * 60.0
"""The most minutes that a run may take."""


@dataclass
class Plan:
    """A complete config, its data if already read, and what to tell the user about both."""

    config: Config
    fixed: Collection[str] = ()
    """Fields that the user has fixed: they are never changed. Names are dotted, as in flags: ``settings.alignment``."""
    corpus: Corpus | None = None
    """All samples: a test set is held out when a run begins, by the seed and the share of that run."""
    found: str = ""
    chosen: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Value and reason of each choice, by field."""
    tunes: bool = False
    """Whether all of a pretrained network is trained, from a run in which it was frozen."""
    before: "Plan | None" = None
    """The plan of that run, if it is still to be trained: ``train(plan.config, first=plan.before.config)``."""

    def set(self, name: str, value: Any, why: str, shown: str = "") -> None:
        """Choose a field, unless the user has fixed it."""
        if name in self.fixed:
            return
        outer, _, inner = name.rpartition(".")
        changed = dataclasses.replace(getattr(self.config, outer), **{inner: value}) if outer else value
        self.config = self.config.replace(**{outer or inner: changed})
        self.chosen.pop(name, None)
        self.chosen[name] = (shown or f"{value}", why)

    def describe(self) -> str:
        """Text for the user: a line on the data, remarks on them, and a line per choice; empty if there is neither."""
        if self.before is not None:
            first = self.before.describe().rpartition("  To change")[0]
            return f"{first}  then all of the network is trained, --finetune:\n{self._choices()}"
        return (f"{self.found}\n" if self.found else "") + self._choices()

    def _choices(self) -> str:
        lines = []
        if self.chosen:
            rows = [(f"--{name.replace('_', '-')}", *choice) for name, choice in self.chosen.items()]
            lines += [f"  {line}" for line in aligned(rows)]
            lines.append("  To change one, add its flag. All are stored in config.json.")
        return "".join(f"{line}\n" for line in lines)


def plan(
    config: Config,
    out: Path | None = None,
    *,
    resume: bool = False,
    fixed: Collection[str] = (),
    automatic: bool | None = None,
    minutes: float | None = None,
    finetune: bool | None = None,
    reading: Reading = DEFAULT,
) -> Plan:
    """Read the data of a new run and, if it is your own, choose what ``config`` leaves open.

    Every field that differs from :func:`normatch.recipes.own` stays as it is. ``fixed`` names fields that stay although
    they have that value: ``fixed={"steps", "settings.alignment"}``. ``minutes`` is the time that training may take: the
    number of steps follows from the speed of a few steps measured on this machine. The choices become part of the
    config, which repeats the run exactly, on this machine or another.

    ``finetune`` is whether a run from pretrained features is followed by one that trains all of the network: the plan
    is then that of the second, and ``plan.before`` that of the first. None is for time that is left of ``minutes`` on a
    GPU, if the user has fixed nothing of the training.

    The values of a recipe of a named data set stay, except that a shortened run logs metrics more often, and that
    ``minutes`` sets the fields that are not ``fixed``. ``automatic`` is whether to choose; None is for your own data
    only. A resumed run has nothing left to choose.
    """
    must_be_config(config)
    if resume:
        if minutes is not None:
            raise UserError(f"minutes is {minutes}: a run that is resumed has its steps; leave it out")
        if finetune is not None:
            raise UserError("finetune is given, but a run that is resumed has its stages: leave it out")
        return Plan(config)
    if minutes is not None and not (0 < minutes <= YEAR):
        raise UserError(f"minutes is {minutes}: give a number of minutes above 0, such as 10")
    if automatic is None:
        automatic = config.data not in sources
    if automatic:
        # What differs from the draft for such data is the user's choice.
        usual, given = (flat(to_json(c)) for c in (own(config.data).replace(method=config.method), config))
        fixed = {*fixed, *(name for name, value in given.items() if value != usual[name])}
    if minutes is not None and "steps" in fixed:
        raise UserError(f"minutes is {minutes} and steps is {config.steps}: give one of them")
    Run.must_be_new(run_folder(config, out))
    tuning = finetune
    if tuning is None:
        ours = not any(name.partition(".")[0] in STAGE for name in fixed)
        tuning = automatic and minutes is not None and ours and device_of(config.device).type == "cuda"
    if finetune and (not automatic or config.start is not None):
        has = f"start is {config.start}" if config.start is not None else f"data is {config.data!r}, not your own"
        raise UserError(f"finetune is on, but {has}: leave it out; --start with a frozen run fine-tunes that")
    if automatic:
        first = _first_stage(config) if tuning else config
        draft = choose(first, _fixed_first(fixed) if tuning else fixed, reading, minutes, tuning)
        if finetune and not draft.config.freeze:
            raise UserError(f"finetune is on, but nothing is frozen first: {_why_not_frozen(draft)}")
    else:
        draft = Plan(config, fixed, open_corpus(config, reading))
        draft.found = _found(draft) if config.unlabelled is not None else ""
        _choose_records(draft)
    spent = 0.0 if minutes is None else _fit_into_minutes(draft, minutes, automatic)
    if not tuning or not draft.config.freeze:
        return draft
    if (backbone := draft.config.backbone).startswith("onnx:"):
        if finetune:
            raise UserError(f"finetune is on, but backbone {backbone!r} cannot be trained: leave it out")
        return draft
    second = _second_stage(draft, config, fixed)
    if minutes is not None:
        try:
            _fit_into_minutes(second, minutes - spent, automatic, spent)
        except UserError:
            if finetune:
                raise
            return draft
    return draft if finetune is None and second.config.steps < WORTH else second


def choose(
    config: Config,
    fixed: Collection[str] = (),
    reading: Reading = DEFAULT,
    minutes: float | None = None,
    tuning: bool = False,
) -> Plan:
    """Read the user's own data, and choose the fields that are not ``fixed`` by the data and the machine.

    ``minutes`` may keep the images small, of which all are embedded if the backbone is frozen. ``tuning`` sets some of
    many labels aside, to choose between that run and a fine-tuned one by.
    """
    device = device_of(config.device).type
    given, config = config.data, _labelled_by_a_table(config)
    draft = Plan(config, {*fixed} - {"backbone"} if config.backbone == "auto" else fixed)
    if config.start is not None:
        _choose_as_start(draft, config.start)
    config = draft.config
    if config.data != given:
        draft.chosen["data"] = (config.data, "it has the labels")
        draft.chosen["unlabelled"] = (given, "its other pictures; no class folder is there")
    if config.image_size is not None:  # refused before any image is decoded
        fitting_backbone(config.backbone, (3, config.image_size, config.image_size))
    listings = find_listings(config.data, config.on_bad_image, config.unlabelled)
    outline = listings.outline() if listings else None
    if outline:
        _must_be_learnable(draft, outline)
    _choose_start(draft, listings, device, reading, minutes)
    largest = SIZES[-1] if draft.config.freeze else _largest_side(config.backbone, device)
    draft.corpus = corpus = open_corpus(draft.config, reading, largest=largest)
    if outline:
        _must_be_readable(outline, corpus)
    if not draft.config.freeze:
        config.augment.must_suit(images=corpus.train.is_images)
    _choose_network(draft, corpus, device)
    _choose_passes(draft)
    _choose_test_share(draft, corpus)
    if tuning and draft.config.freeze:
        _choose_validation(draft, corpus)
    to_learn_from = with_test_set(draft.config, _labels_of(corpus))
    split = draw(draft.config, to_learn_from)
    _choose_features(draft, corpus, split)
    _choose_alignment(draft, to_learn_from, split)
    _choose_training(draft, split, device)
    if corpus.train.is_images and config.augment.flip and (draft.config.copies or not draft.config.freeze):
        draft.chosen["augment.flip"] = ("on", "a mirrored image keeps its class; --augment.no-flip where it does not")
    draft.found = _found(draft, listings)
    return draft


def _labelled_by_a_table(config: Config) -> Config:
    """The config, with the one table of labels as its data if the folder that is its data has none: then the table
    says which classes there are."""
    where = Path(config.data).expanduser()
    tables = [place for place in config.labelled if is_manifest(place.expanduser())]
    if len(tables) != 1 or config.labelled[1:] or config.unlabelled or not where.is_dir() or has_classes(where):
        return config
    return config.replace(data=str(tables[0]), unlabelled=where, labelled=())


def _labels_of(corpus: Corpus) -> Corpus:
    """The corpus without its inputs: to hold some out would copy all the others."""

    def labels(part: Dataset) -> Dataset:
        return dataclasses.replace(part, inputs=np.zeros((len(part), 0), np.float32))

    test = None if corpus.test is None else labels(corpus.test)
    return dataclasses.replace(corpus, train=labels(corpus.train), test=test)


def _must_be_learnable(draft: Plan, outline: Corpus) -> None:
    """Raise UserError if the labels do not suffice for what the config asks for, before any image is decoded."""
    must_have_classes(outline)
    tried = Plan(draft.config, draft.fixed)
    _choose_test_share(tried, outline)
    draw(tried.config, with_test_set(tried.config, outline))


def _must_be_readable(outline: Corpus, corpus: Corpus) -> None:
    """Raise UserError if of some class no training image could be read."""
    read = label_counts(corpus.train)
    for name, n in label_counts(outline.train).items():
        if name not in read:
            images = counted(n, "image")
            raise UserError(f"no image of class {name!r}, which has {images}, can be read: replace or remove them")


def _largest_side(backbone: str, device: str) -> int:
    """The side to which larger images are scaled: small without a GPU, unless ``backbone`` takes none that small."""
    takes_small = backbone == "auto" or find_backbone(backbone).supports((3, SMALL, SMALL))
    return SMALL if device == "cpu" and takes_small else SIZES[-1]


def _found(draft: Plan, listings: Listings | None = None) -> str:
    """A line on the data, then a line for each remark on them."""
    assert draft.corpus is not None
    corpus, train, skipped = draft.corpus, draft.corpus.train, len(draft.corpus.skipped)
    labelled = int((train.labels != UNKNOWN).sum())
    parts = [f"{len(train.classes)} classes", f"{labelled:,} labelled", f"{len(train) - labelled:,} unlabelled"]
    if corpus.test is not None:
        parts.append(f"{len(corpus.test):,} test samples{'' if corpus.is_testable else ' without labels'}")
    if skipped:
        parts.append(f"{counted(skipped, 'unreadable file')} skipped")
    remarks = [describe_skew(label_counts(train)), describe_dark(corpus)]
    ignored = say_ignored(passed_over(listings, draft.config.unlabelled))
    said = [*doubtful_names(train.classes), *filter(None, remarks), *ignored]
    return "\n! ".join([f"{corpus.name}: {', '.join(parts)}", *said])


# Two stages


def _why_not_frozen(draft: Plan) -> str:
    if "scratch" in draft.chosen:
        return draft.chosen["scratch"][1]
    if draft.corpus is not None and not draft.corpus.train.is_images:
        return "the data are feature vectors"
    return f"backbone is {draft.config.backbone!r} without --freeze"


def _first_stage(config: Config) -> Config:
    """The config without what the user has given for fine-tuning."""
    usual, settings = own(config.data), config.settings
    if isinstance(settings, WeakToStrongSettings):
        settings = dataclasses.replace(settings, passes="joint")
    return config.replace(**{name: getattr(usual, name) for name in STAGE}, settings=settings)


def _fixed_first(fixed: Collection[str]) -> set[str]:
    return {name for name in fixed if name.partition(".")[0] not in STAGE and name != "settings.passes"}


def _second_stage(draft: Plan, config: Config, fixed: Collection[str]) -> Plan:
    """The plan that trains all of the network from the end of the ``draft``, whose backbone is frozen."""
    assert draft.corpus is not None
    stage = {name: getattr(config, name) for name in STAGE}
    after = draft.config.replace(freeze=False, copies=0, weights=None, **stage)
    second = Plan(after, fixed, draft.corpus, tunes=True, before=draft)
    _choose_passes(second)
    split = draw(after, with_test_set(after, _labels_of(draft.corpus)))
    _choose_training(second, split, device_of(config.device).type)
    return second


def _choose_as_start(draft: Plan, run: Path) -> None:
    """Choose network and image size as they are in the run to start from."""
    spec = read_spec(Run.open(run.expanduser()).path / "model.json")
    draft.tunes = spec.backbone.startswith((f"{FROZEN_FAMILY}:", f"{TUNED_FAMILY}:"))
    draft.set("backbone", plain_name(spec.backbone), f"that of {run}, from which it starts")
    if len(spec.shape) == 3:
        draft.set("image_size", spec.shape[1], "as there")


def _choose_validation(draft: Plan, corpus: Corpus) -> None:
    labelled = sum(label_counts(corpus.train).values()) * (1 - draft.config.test_share)
    if labelled >= SPARED:
        draft.set("validation", HELD_OUT, "a share of the labels, to choose between start and end of fine-tuning by")


# The rules


def _choose_start(draft: Plan, listings: Listings | None, device: str, reading: Reading, minutes: float | None) -> None:
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


def _choose_training(draft: Plan, split: Split, device: str) -> None:
    """Choose what is of one stage of training."""
    _choose_batch(draft, split, device)
    if draft.config.freeze:
        draft.set("steps", FROZEN[device]["steps"], "enough on features that stay")
    else:
        where = "on a GPU" if device == "cuda" else "without a GPU"
        steps = (TUNING_STEPS if draft.tunes else STEPS)[device]
        draft.set("steps", steps, f"the default {where}; --minutes 10 fits them to your time")
    epochs = FROZEN_EPOCHS if draft.config.freeze else TUNING_EPOCHS if draft.tunes else EPOCHS
    _choose_epoch(draft, max(1, math.ceil(draft.config.steps / epochs)))
    _choose_records(draft)
    _choose_rates(draft)
    _choose_vector_views(draft)


def side_to_embed(backbone: str, views: int, device: str) -> int:
    """The side at which so many images are embedded where there is no time budget."""
    least, most = find_backbone(backbone).sides or (0, 0)
    fitting = [side for side in FROZEN_SIDES[device] if least <= side <= most] or [least]
    fast = [side for side in fitting if device == "cuda" or views * side**2 <= EMBEDDED]
    return max(fast[-1:] + fitting[:2][-1:])


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


def _choose_network(draft: Plan, corpus: Corpus, device: str) -> None:
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


def _choose_passes(draft: Plan) -> None:
    """Leave weak views out of the backward pass where method and network can: less time for the same accuracy."""
    settings = draft.config.settings
    if draft.config.freeze:
        return
    if isinstance(settings, WeakToStrongSettings) and find_backbone(draft.config.backbone).partial:
        with contextlib.suppress(UserError):  # A method may need the gradients of weak views.
            dataclasses.replace(settings, passes="shared").check()
            draft.set("settings.passes", "shared", "no gradients for weakly augmented images, which is faster")


def _choose_test_share(draft: Plan, corpus: Corpus) -> None:
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


def _choose_features(draft: Plan, corpus: Corpus, split: Split) -> None:
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


def _choose_alignment(draft: Plan, corpus: Corpus, split: Split) -> None:
    """Turn alignment off where the labels are skewed: most likely the samples are too."""
    counts = label_counts(corpus.train, split.labelled).values()
    if getattr(draft.config.settings, "alignment", False) and skewed(counts):
        why = (
            f"labels to learn from are {describe_ratio(counts)}, and alignment makes all classes equally frequent; "
            "--settings.alignment if the unlabelled samples are balanced"
        )
        draft.set("settings.alignment", False, why, "off")


def _choose_batch(draft: Plan, split: Split, device: str) -> None:
    labelled, unlabelled = len(split.labelled), len(split.unlabelled)
    frozen = draft.config.freeze
    most = FROZEN[device]["batch"] if frozen else LARGEST_BATCH["cpu" if draft.tunes else device]
    batch = min(most, max(LEAST_BATCH, 2 ** int(math.log2(max(1, labelled)))))
    draft.set("batch", batch, f"{labelled:,} labelled samples to learn from")
    most = FROZEN[device if frozen else "cpu"]["ratio"] if frozen or (draft.tunes and device == "cpu") else RATIO
    ratio = min(most, max(1, unlabelled // draft.config.batch))
    draft.set("ratio", ratio, f"unlabelled samples per labelled one, drawn from {unlabelled:,}")


def _choose_epoch(draft: Plan, epoch: int) -> None:
    config, epochs = draft.config, math.ceil(draft.config.steps / epoch)
    due = {"evaluation": config.evaluate_every, "checkpoint": config.checkpoint_every}
    what = [name for name, every in due.items() if every is None] or ["epoch"]
    draft.set("epoch", epoch, f"{epochs} {' and '.join(name if epochs == 1 else f'{name}s' for name in what)}")


def _choose_records(draft: Plan) -> None:
    every = max(1, draft.config.steps // RECORDS)
    if every < draft.config.log_every:
        draft.set("log_every", every, f"for enough lines of metrics in {counted(draft.config.steps, 'step')}")


def _choose_rates(draft: Plan) -> None:
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


# A time budget


def _fit_into_minutes(draft: Plan, minutes: float, automatic: bool, spent: float = 0.0) -> float:
    """Choose the steps, and what follows from them, that fit into a time; ``automatic`` is for the user's own data.
    ``spent`` is what an earlier stage takes of the minutes that the user gave. Returns the minutes that it will take.

    A run of less than LEAST_STEPS steps gets smaller batches if they are open, and is refused if that is not enough.
    """
    config, fixed = draft.config, draft.fixed
    embedding = _embedding_seconds(draft) / 60
    left = minutes - embedding
    # The steps between two evaluations if the user has given them.
    every = config.evaluate_every if "evaluate_every" in fixed else None
    if "epoch" in fixed and config.evaluate_every is None:
        every = config.epoch

    def measured() -> tuple[Pace, int, int]:
        """The speed of the draft on this machine, and how many evaluations and steps that leaves time for."""
        speed = pace(prepare(*_stand_in(draft), start=_stand_in_start(draft)))
        due = config.steps // (config.evaluate_every or config.epoch)
        evaluations = max(1, min(due, int(EVALUATING * speed.seconds_in(left) / speed.evaluation)))
        if every is None:
            return speed, evaluations, speed.steps_in(left, evaluations=evaluations)
        # The one evaluation is that after the last step.
        return speed, evaluations, speed.steps_in(left, evaluations=1, every=every)

    speed, evaluations, steps = measured()
    if 0 < steps < LEAST_STEPS and automatic:
        _choose_smaller_batch(draft, steps)
        if draft.config != config:
            speed, evaluations, steps = measured()
    if steps < LEAST_STEPS:
        needed = spent + embedding + (speed.start + LEAST_STEPS * speed.step + speed.evaluation) / (60 * (1 - SPARE))
        raise UserError(
            f"minutes is {minutes + spent:g}: at {1 / speed.step:.2g} steps/s, measured on this machine, too few for "
            f"{LEAST_STEPS} steps, the least that teach a network something: give --minutes {math.ceil(needed)}, a "
            "smaller --image-size, --backbone or --batch, or the number of --steps"
        )
    if automatic and config.freeze and steps >= config.steps:
        steps = config.steps  # more would teach nothing new
        return embedding + (speed.start + steps * speed.step + evaluations * speed.evaluation) / 60
    evaluating = f" and {speed.evaluation:.2g} s for an evaluation every {every:,}" if every else ""
    at = f"{minutes:g} minute{'' if minutes == 1 else 's'} at {1 / speed.step:.2f} steps/s"
    draft.set("steps", steps, f"{at}{evaluating}, measured on this machine")
    epoch = config.epoch if "epoch" in fixed else math.ceil(steps / max(1, config.steps // config.epoch))
    # Not by longer epochs, which are also the unit of a method's ramps.
    if every is None and (config.evaluate_every or evaluations < math.ceil(steps / epoch)):
        _choose_interval(draft, "evaluate_every", "evaluation", evaluations)
    if config.checkpoint_every or math.ceil(steps / epoch) > EPOCHS:
        _choose_interval(draft, "checkpoint_every", "checkpoint", EPOCHS)
    _choose_epoch(draft, epoch)
    _choose_records(draft)
    if automatic:
        _choose_rates(draft)
    return minutes


def _stand_in_start(draft: Plan) -> Model | None:
    """What to time in place of a run that is still to be trained."""
    if draft.before is None or draft.corpus is None:
        return None
    return untrained_start(draft.config, draft.corpus.train)


def _embedding_seconds(draft: Plan) -> float:
    """The time that a frozen backbone takes for all views, measured on this machine; 0 if it is not frozen."""
    config, corpus = draft.config, draft.corpus
    if not config.freeze or corpus is None:
        return 0.0
    views = sum(map(len, corpus.parts.values())) + 2 * config.copies * len(corpus.train)
    backbone = PRETRAINED if config.backbone == "auto" else config.backbone
    return views / embedding_pace(backbone, corpus.train.shape, device_of(config.device))


def _stand_in(draft: Plan) -> tuple[Config, Corpus | None]:
    """What to time: the draft or, if its backbone is frozen, noise in place of its features."""
    config, corpus = draft.config, draft.corpus
    if not config.freeze or corpus is None:
        return config, corpus

    def noise(part: Dataset) -> Dataset:
        width = 1280  # of the usual backbone
        return dataclasses.replace(part, inputs=np.random.default_rng(0).random((len(part), width), np.float32))

    test = None if corpus.test is None else noise(corpus.test)
    views = config.augment
    plain = {"freeze": False, "copies": 0, "weights": None, "image_size": None, "backbone": "mlp"}
    augment = AugmentConfig(noise=views.noise, mix=views.mix, mask=views.mask)
    return config.replace(**plain, augment=augment), dataclasses.replace(corpus, train=noise(corpus.train), test=test)


def _choose_smaller_batch(draft: Plan, steps: int) -> None:
    """Choose batch and ratio with as many images as leave time for LEAST_STEPS steps where there was for ``steps``."""
    config = draft.config
    images = config.batch * (1 + config.ratio) * steps / LEAST_STEPS
    why = f"{counted(steps, 'step')} with {config.batch * (1 + config.ratio)} images each would not learn"
    batch = min(config.batch, max(LEAST_BATCH, 2 ** int(math.log2(max(1, images / (1 + config.ratio))))))
    if batch < config.batch:
        draft.set("batch", batch, why)
    ratio = max(1, min(config.ratio, int(images / draft.config.batch) - 1))
    if ratio < config.ratio:
        draft.set("ratio", ratio, why)


def _choose_interval(draft: Plan, name: str, what: str, times: int) -> None:
    """Choose how often something is done, so that it is done at most ``times`` in the run."""
    every = math.ceil(draft.config.steps / times)
    draft.set(name, every, counted(math.ceil(draft.config.steps / every), what))
