"""Choose the settings that the user left open for a run on their own data, from the data and the machine."""

import contextlib
import dataclasses
import math
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from normatch.columns import aligned, counted
from normatch.config import Config, flat, must_be_config, to_json
from normatch.data import UNKNOWN, Corpus, Dataset, Reading, Split, sources
from normatch.data.balance import describe_ratio, describe_skew, label_counts, skewed, too_few
from normatch.data.dataset import doubtful_names
from normatch.data.folder import Listings
from normatch.data.ignored import say_ignored
from normatch.data.load import find_listings, passed_over
from normatch.data.reading import DEFAULT
from normatch.device import device_of
from normatch.engine.job import draw, must_have_classes, open_corpus, prepare, with_test_set
from normatch.engine.pace import Pace, pace
from normatch.engine.run import Run
from normatch.engine.train import run_folder
from normatch.errors import UserError
from normatch.images import SIZES, describe_dark
from normatch.methods.parts.weak_to_strong import WeakToStrongSettings
from normatch.nets import SMALL, ImageShapes, backbones, find_backbone, fitting_backbone, suitable_backbone
from normatch.recipes import own

__all__ = ["Plan", "choose", "plan"]

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

MUON, MUONS = 1.6, (0.005, 0.1)
"""Muon's learning rate times the square root of the steps, and its bounds: what was best in runs of 256, 1,024 and
10,240 steps (docs/results.md, Another optimiser)."""

EVALUATING = 0.2
"""Largest share of a time budget to spend on evaluations."""


@dataclass(frozen=True)
class Plan:
    """A complete config, its data if already read, and what to tell the user about both."""

    config: Config
    corpus: Corpus | None = None
    """All items: a test set is held out when a run begins, by the seed and the share of that run."""
    found: str = ""
    chosen: tuple[tuple[str, str, str], ...] = ()
    """Field (dotted, as in flags), value and reason of each choice."""

    def describe(self) -> str:
        """Text for the user: a line on the data, remarks on them, and a line per choice; empty if there is neither."""
        lines = [self.found] if self.found else []
        if self.chosen:
            rows = [(f"--{name.replace('_', '-')}", value, why) for name, value, why in self.chosen]
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
    reading: Reading = DEFAULT,
) -> Plan:
    """Read the data of a new run and, if it is your own, choose what ``config`` leaves open.

    Every field that differs from :func:`normatch.recipes.own` stays as it is. ``fixed`` names fields that stay although
    they have that value: ``fixed={"steps", "settings.alignment"}``. ``minutes`` is the time that training may take: the
    number of steps follows from the speed of a few steps measured on this machine. The choices become part of the
    config, which repeats the run exactly, on this machine or another.

    The values of a recipe of a named data set stay, except that a shortened run logs metrics more often, and that
    ``minutes`` sets the fields that are not ``fixed``. ``automatic`` is whether to choose; None is for your own data
    only. A resumed run has nothing left to choose.
    """
    must_be_config(config)
    if resume:
        if minutes is not None:
            raise UserError(f"minutes is {minutes}: a run that is resumed has its steps; leave it out")
        return Plan(config)
    if minutes is not None and not (0 < minutes < math.inf):
        raise UserError(f"minutes is {minutes}: give a positive number, such as 10")
    if automatic is None:
        automatic = config.data not in sources
    fixed = _fixed(config, fixed) if automatic else frozenset(fixed)
    if minutes is not None and "steps" in fixed:
        raise UserError(f"minutes is {minutes} and steps is {config.steps}: give one of them")
    Run.must_be_new(run_folder(config, out))
    made = choose(config, fixed, reading) if automatic else _from_recipe(config, fixed, reading)
    return made if minutes is None else _within_minutes(made, minutes, fixed, automatic)


def _fixed(config: Config, named: Collection[str]) -> frozenset[str]:
    """The fields that are the user's choice: those ``named``, and all whose value is not that of the recipe."""
    recipe, given = (flat(to_json(c)) for c in (own(config.data).replace(method=config.method), config))
    return frozenset(named) | {name for name, value in given.items() if value != recipe[name]}


def _from_recipe(config: Config, fixed: frozenset[str], reading: Reading) -> Plan:
    """The plan of a recipe: its config unchanged, except that a short run logs metrics more often."""
    choices = _Choices(config, fixed)
    _choose_records(choices)
    corpus = open_corpus(config, reading)
    config.augment.must_suit(images=corpus.train.is_images)
    found = _found(config, corpus, None) if config.unlabelled is not None else ""
    return Plan(choices.config, corpus, found, tuple(choices.made))


def choose(config: Config, fixed: Collection[str] = (), reading: Reading = DEFAULT) -> Plan:
    """Read the user's own data and choose the fields that are not ``fixed``, for a run or to time its steps."""
    device = device_of(config.device).type
    # A network that was asked for as "auto" is to be chosen.
    fixed = frozenset(fixed) - ({"backbone"} if config.backbone == "auto" else set())
    _must_be_possible(config)
    listings = find_listings(config.data, config.on_bad_image, config.unlabelled)
    outline = listings.outline() if listings else None
    if outline:
        _must_be_learnable(config, fixed, outline)
    corpus = open_corpus(config, reading, largest=_largest_side(config.backbone, device))
    if outline:
        _must_be_readable(outline, corpus)
    config.augment.must_suit(images=corpus.train.is_images)
    choices = _Choices(config, fixed)
    _choose_network(choices, corpus, device)
    _choose_passes(choices)
    _choose_test_share(choices, corpus)
    to_learn_from = with_test_set(choices.config, _labels_of(corpus))
    split = draw(choices.config, to_learn_from)
    _choose_alignment(choices, to_learn_from, split)
    _choose_batch(choices, split, device)
    _choose_steps(choices, device)
    if corpus.train.is_images and config.augment.flip:
        choices.made.append(
            ("augment.flip", "on", "a mirrored image keeps its class; --augment.no-flip where it does not")
        )
    return Plan(choices.config, corpus, _found(config, corpus, listings), tuple(choices.made))


def _labels_of(corpus: Corpus) -> Corpus:
    """The corpus without its inputs: to hold some out would copy all the others."""

    def labels(part: Dataset) -> Dataset:
        return dataclasses.replace(part, inputs=np.zeros((len(part), 0), np.float32))

    test = None if corpus.test is None else labels(corpus.test)
    return dataclasses.replace(corpus, train=labels(corpus.train), test=test)


def _must_be_learnable(config: Config, fixed: frozenset[str], outline: Corpus) -> None:
    """Raise UserError, before any image is decoded, if the labels do not suffice for what the config asks for."""
    must_have_classes(outline)
    choices = _Choices(config, fixed)
    _choose_test_share(choices, outline)
    draw(choices.config, with_test_set(choices.config, outline))


def _must_be_readable(outline: Corpus, corpus: Corpus) -> None:
    """Raise UserError if of some class no training image could be read."""
    read = label_counts(corpus.train)
    for name, n in label_counts(outline.train).items():
        if name not in read:
            which = f"all {n:,} pictures" if n > 1 else "the only picture"
            raise UserError(
                f"{which} of class {name!r} {'are' if n > 1 else 'is'} unreadable: replace "
                f"{'them' if n > 1 else 'it'}, or remove the class"
            )


def _must_be_possible(config: Config) -> None:
    """Raise UserError, before any image is decoded, if the backbone is unknown or none takes the image size."""
    backbone = find_backbone(config.backbone) if config.backbone != "auto" else None
    if config.image_size is not None and config.image_size >= 1:
        shapes = [(channels, config.image_size, config.image_size) for channels in (1, 3)]
        if backbone is None:
            suitable_backbone(shapes[1])
        elif not any(backbone.supports(shape) for shape in shapes):
            raise UserError(
                f"image_size is {config.image_size}, but backbone {config.backbone!r} takes only {backbone.shapes}: "
                "choose another of the two"
            )


def _largest_side(backbone: str, device: str) -> int:
    """The side to which larger images are scaled: small without a GPU, unless ``backbone`` takes none that small."""
    small = [(channels, SMALL, SMALL) for channels in (1, 3)]
    takes_small = backbone == "auto" or any(map(find_backbone(backbone).supports, small))
    return SMALL if device == "cpu" and takes_small else SIZES[-1]


class _Choices:
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


def _choose_network(choices: _Choices, corpus: Corpus, device: str) -> None:
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


def _choose_passes(choices: _Choices) -> None:
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


def _choose_test_share(choices: _Choices, corpus: Corpus) -> None:
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


def _choose_alignment(choices: _Choices, corpus: Corpus, split: Split) -> None:
    """Turn alignment off where the labels are skewed: most likely the items are too. Not if its batches are given."""
    counts = label_counts(corpus.train, split.labelled).values()
    aligned_by = choices.fixed & {"settings.alignment", "settings.alignment_batches"}
    if getattr(choices.config.settings, "alignment", False) and not aligned_by and skewed(counts):
        why = (
            f"labels to learn from are {describe_ratio(counts)}, and alignment makes all classes equally frequent; "
            "--settings.alignment if the unlabelled items are balanced"
        )
        choices.set("settings.alignment", False, why, "off")


def _choose_batch(choices: _Choices, split: Split, device: str) -> None:
    labelled, unlabelled = len(split.labelled), len(split.unlabelled)
    batch = min(LARGEST_BATCH[device], max(LEAST_BATCH, 2 ** int(math.log2(max(1, labelled)))))
    choices.set("batch", batch, f"{labelled:,} labelled items to learn from")
    batch = choices.config.batch
    ratio = min(RATIO, max(1, unlabelled // batch))
    choices.set("ratio", ratio, f"unlabelled items per labelled one, drawn from {unlabelled:,}")


def _choose_steps(choices: _Choices, device: str) -> None:
    where = "on a GPU" if device == "cuda" else "without a GPU"
    choices.set("steps", STEPS[device], f"the default {where}; --minutes 10 fits them to your time")
    _choose_epoch(choices, max(1, choices.config.steps // EPOCHS))
    _choose_records(choices)
    _choose_momentum(choices)
    _choose_muon(choices)


def _choose_epoch(choices: _Choices, epoch: int) -> None:
    config, epochs = choices.config, math.ceil(choices.config.steps / epoch)
    due = {"evaluation": config.evaluate_every, "checkpoint": config.checkpoint_every}
    what = [name for name, every in due.items() if every is None] or ["epoch"]
    choices.set("epoch", epoch, f"{epochs} {' and '.join(name if epochs == 1 else f'{name}s' for name in what)}")


def _choose_records(choices: _Choices) -> None:
    every = max(1, choices.config.steps // RECORDS)
    if every < choices.config.log_every:
        choices.set("log_every", every, f"for enough lines of metrics in {counted(choices.config.steps, 'step')}")


def _choose_momentum(choices: _Choices) -> None:
    """Choose batch norm's momentum: a short run needs fast-moving statistics, a long one can average longer."""
    momentum = min(MOMENTA[1], max(MOMENTA[0], round(LEARNT / choices.config.steps, 3)))
    choices.set("norm_momentum", momentum, f"batch norm averages over about {round(1 / momentum)} steps")


def _choose_muon(choices: _Choices) -> None:
    """Train convolutions by Muon; not pretrained ones, which such large steps would undo, nor other networks of timm,
    with which it has not been tried."""
    name = choices.config.backbone
    spec = find_backbone(name)
    if name in backbones and isinstance(spec.shapes, ImageShapes) and spec.statistics is None:
        rate = min(MUONS[1], max(MUONS[0], float(f"{MUON / math.sqrt(choices.config.steps):.2g}")))
        choices.set("optim.muon", rate, f"convolutions learn faster by it; for {counted(choices.config.steps, 'step')}")


def _within_minutes(made: Plan, minutes: float, fixed: frozenset[str], automatic: bool) -> Plan:
    config = made.config
    speed = pace(prepare(config, made.corpus))
    epochs, due = (max(1, config.steps // every) for every in (config.epoch, config.evaluate_every or config.epoch))
    affordable = int(EVALUATING * speed.seconds_in(minutes) / speed.evaluation)
    evaluations = max(1, min(due, affordable))
    if "evaluate_every" in fixed:
        every = config.evaluate_every
    else:
        every = config.epoch if "epoch" in fixed and config.evaluate_every is None else None
    if every is None:
        steps = speed.steps_in(minutes, evaluations=evaluations)
    else:
        # The one evaluation is that after the last step.
        steps = speed.steps_in(minutes, evaluations=1, every=every)
    if steps < 1:
        needed = speed.start + speed.step + speed.evaluation
        raise UserError(f"minutes is {minutes:g}: too few for one step, which takes {needed:.1f} s with the start")
    choices = _Choices(config, fixed)
    choices.set("steps", steps, _pace_reason(minutes, speed, every))
    epoch = config.epoch if "epoch" in fixed else math.ceil(steps / epochs)
    # Not by longer epochs, which are also the unit of a method's ramps.
    if every is None and (config.evaluate_every or evaluations < math.ceil(steps / epoch)):
        _choose_interval(choices, "evaluate_every", evaluations)
    if config.checkpoint_every or math.ceil(steps / epoch) > EPOCHS:
        _choose_interval(choices, "checkpoint_every", EPOCHS)
    _choose_epoch(choices, epoch)
    _choose_records(choices)
    if automatic:
        _choose_momentum(choices)
        _choose_muon(choices)
    changed = {name for name, *_ in choices.made}
    earlier = tuple(choice for choice in made.chosen if choice[0] not in changed)
    return Plan(choices.config, made.corpus, made.found, earlier + tuple(choices.made))


def _choose_interval(choices: _Choices, name: str, times: int) -> None:
    """Choose how often something is done, so that it is done at most ``times`` in the run."""
    every = math.ceil(choices.config.steps / times)
    what = {"evaluate_every": "evaluation", "checkpoint_every": "checkpoint"}[name]
    choices.set(name, every, counted(math.ceil(choices.config.steps / every), what))


def _pace_reason(minutes: float, speed: Pace, every: int | None) -> str:
    unit = "minute" if minutes == 1 else "minutes"
    evaluating = f" and {speed.evaluation:.2g} s for an evaluation every {every:,}" if every else ""
    return f"{minutes:g} {unit} at {1 / speed.step:.2f} steps/s{evaluating}, measured on this machine"


def _found(config: Config, corpus: Corpus, listings: Listings | None) -> str:
    """A line on the data, then a line for each remark on them."""
    train, skipped = corpus.train, len(corpus.skipped)
    labelled = int((train.labels != UNKNOWN).sum())
    parts = [
        f"{len(train.classes)} classes",
        f"{labelled:,} labelled",
        f"{len(train) - labelled:,} unlabelled",
    ]
    if corpus.test is not None:
        parts.append(f"{len(corpus.test):,} test items{'' if corpus.is_testable else ' without labels'}")
    if skipped:
        parts.append(f"{counted(skipped, 'unreadable file')} skipped")
    remarks = [describe_skew(label_counts(train)), describe_dark(corpus.facts) if corpus.facts is not None else None]
    ignored = say_ignored(passed_over(listings, config.unlabelled))
    said = [*doubtful_names(train.classes), *filter(None, remarks), *ignored]
    return "\n! ".join([f"{corpus.name}: {', '.join(parts)}", *said])
