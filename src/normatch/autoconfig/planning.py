"""Choose the settings that the user left open for a run on their own data, from the data and the machine."""

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from normatch.autoconfig.minutes import fit_into_minutes
from normatch.autoconfig.rules import (
    Choices,
    choose_alignment,
    choose_batch,
    choose_network,
    choose_passes,
    choose_records,
    choose_steps,
    choose_test_share,
)
from normatch.config import Config, flat, must_be_config, to_json
from normatch.data import UNKNOWN, Corpus, Dataset, Reading, sources
from normatch.data.dataset import doubtful_names
from normatch.data.folder import Listings, say_ignored
from normatch.data.images import DEFAULT, SIZES, describe_dark
from normatch.data.load import find_listings, passed_over
from normatch.data.split import describe_skew, label_counts
from normatch.device import device_of
from normatch.errors import UserError
from normatch.nets import SMALL, find_backbone, suitable_backbone
from normatch.recipes import own
from normatch.text import aligned, counted
from normatch.training.job import draw, must_have_classes, open_corpus, with_test_set
from normatch.training.run import Run
from normatch.training.train import run_folder

__all__ = ["Plan", "choose", "plan"]


YEAR = 365 * 24 * 60.0
"""The most minutes that a run may take."""


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
    if minutes is not None and not (0 < minutes <= YEAR):
        raise UserError(f"minutes is {minutes}: give a number of minutes above 0, such as 10")
    if automatic is None:
        automatic = config.data not in sources
    fixed = _fixed(config, fixed) if automatic else frozenset(fixed)
    if minutes is not None and "steps" in fixed:
        raise UserError(f"minutes is {minutes} and steps is {config.steps}: give one of them")
    Run.must_be_new(run_folder(config, out))
    made = choose(config, fixed, reading) if automatic else _from_recipe(config, fixed, reading)
    if minutes is None:
        return made
    choices = fit_into_minutes(made.config, made.corpus, minutes, fixed, automatic)
    changed = {name for name, *_ in choices.made}
    earlier = tuple(choice for choice in made.chosen if choice[0] not in changed)
    return dataclasses.replace(made, config=choices.config, chosen=earlier + tuple(choices.made))


def _fixed(config: Config, named: Collection[str]) -> frozenset[str]:
    """The fields that are the user's choice: those ``named``, and all whose value is not that of the recipe."""
    recipe, given = (flat(to_json(c)) for c in (own(config.data).replace(method=config.method), config))
    return frozenset(named) | {name for name, value in given.items() if value != recipe[name]}


def _from_recipe(config: Config, fixed: frozenset[str], reading: Reading) -> Plan:
    """The plan of a recipe: its config unchanged, except that a short run logs metrics more often."""
    choices = Choices(config, fixed)
    choose_records(choices)
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
    choices = Choices(config, fixed)
    choose_network(choices, corpus, device)
    choose_passes(choices)
    choose_test_share(choices, corpus)
    to_learn_from = with_test_set(choices.config, _labels_of(corpus))
    split = draw(choices.config, to_learn_from)
    choose_alignment(choices, to_learn_from, split)
    choose_batch(choices, split, device)
    choose_steps(choices, device)
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
    choices = Choices(config, fixed)
    choose_test_share(choices, outline)
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
                f"image_size is {config.image_size}, but backbone {config.backbone!r} takes only {backbone.takes}: "
                "choose another of the two"
            )


def _largest_side(backbone: str, device: str) -> int:
    """The side to which larger images are scaled: small without a GPU, unless ``backbone`` takes none that small."""
    small = [(channels, SMALL, SMALL) for channels in (1, 3)]
    takes_small = backbone == "auto" or any(map(find_backbone(backbone).supports, small))
    return SMALL if device == "cpu" and takes_small else SIZES[-1]


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
