"""The plan of a run: of one stage, or of two, from pretrained features that stay to all of the network."""

import dataclasses
from collections.abc import Collection
from pathlib import Path

import numpy as np

from normatch.autoconfig.draft import Plan
from normatch.autoconfig.minutes import fit_into_minutes
from normatch.autoconfig.rules import (
    choose_alignment,
    choose_features,
    choose_network,
    choose_passes,
    choose_records,
    choose_start,
    choose_test_share,
    choose_training,
    choose_validation,
)
from normatch.config import Config, flat, must_be_config, to_json
from normatch.data import UNKNOWN, Corpus, Dataset, Reading, sources
from normatch.data.folder import Listings, has_classes, say_ignored
from normatch.data.images import DEFAULT, SIZES
from normatch.data.inspect import describe_dark, doubtful_names
from normatch.data.load import find_listings, passed_over
from normatch.data.manifest import is_manifest
from normatch.data.split import describe_skew, label_counts
from normatch.device import device_of
from normatch.errors import UserError
from normatch.methods.parts.weak_to_strong import WeakToStrongSettings
from normatch.nets import SMALL, find_backbone, fitting_backbone
from normatch.nets.frozen import FROZEN as FROZEN_FAMILY
from normatch.nets.frozen import TUNED as TUNED_FAMILY
from normatch.nets.frozen import plain_name
from normatch.nets.model import read_spec
from normatch.recipes import own
from normatch.text import counted
from normatch.training.job import draw, must_have_classes, open_corpus, with_test_set
from normatch.training.run import Run
from normatch.training.train import run_folder

__all__ = ["choose", "plan"]

WORTH = 500
"""Least steps of fine-tuning for which time that is left is used without being asked."""

STAGE = (
    *("steps", "epoch", "batch", "ratio", "optim", "ema", "ema_ramp", "norm_momentum", "augment"),
    *("log_every", "evaluate_every", "checkpoint_every"),
)
"""Config fields of one stage of training: what the user gives for them is for fine-tuning, if there is any."""

YEAR = 365 * 24 * 60.0
"""The most minutes that a run may take."""


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
        choose_records(draft)
    spent = 0.0 if minutes is None else fit_into_minutes(draft, minutes, automatic)
    if not tuning or not draft.config.freeze:
        return draft
    if (backbone := draft.config.backbone).startswith("onnx:"):
        if finetune:
            raise UserError(f"finetune is on, but backbone {backbone!r} cannot be trained: leave it out")
        return draft
    second = _second_stage(draft, config, fixed)
    if minutes is not None:
        try:
            fit_into_minutes(second, minutes - spent, automatic, spent)
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
    choose_start(draft, listings, device, reading, minutes)
    largest = SIZES[-1] if draft.config.freeze else _largest_side(config.backbone, device)
    draft.corpus = corpus = open_corpus(draft.config, reading, largest=largest)
    if outline:
        _must_be_readable(outline, corpus)
    if not draft.config.freeze:
        config.augment.must_suit(images=corpus.train.is_images)
    choose_network(draft, corpus, device)
    choose_passes(draft)
    choose_test_share(draft, corpus)
    if tuning and draft.config.freeze:
        choose_validation(draft, corpus)
    to_learn_from = with_test_set(draft.config, _labels_of(corpus))
    split = draw(draft.config, to_learn_from)
    choose_features(draft, corpus, split)
    choose_alignment(draft, to_learn_from, split)
    choose_training(draft, split, device)
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


def _choose_as_start(draft: Plan, run: Path) -> None:
    """Choose network and image size as they are in the run to start from."""
    spec = read_spec(Run.open(run.expanduser()).path / "model.json")
    draft.tunes = spec.backbone.startswith((f"{FROZEN_FAMILY}:", f"{TUNED_FAMILY}:"))
    draft.set("backbone", plain_name(spec.backbone), f"that of {run}, from which it starts")
    if len(spec.shape) == 3:
        draft.set("image_size", spec.shape[1], "as there")


def _must_be_learnable(draft: Plan, outline: Corpus) -> None:
    """Raise UserError if the labels do not suffice for what the config asks for, before any image is decoded."""
    must_have_classes(outline)
    tried = Plan(draft.config, draft.fixed)
    choose_test_share(tried, outline)
    draw(tried.config, with_test_set(tried.config, outline))


def _must_be_readable(outline: Corpus, corpus: Corpus) -> None:
    """Raise UserError if of some class no training image could be read."""
    read = label_counts(corpus.train)
    for name, n in label_counts(outline.train).items():
        if name not in read:
            images = counted(n, "image")
            raise UserError(f"no image of class {name!r}, which has {images}, can be read: replace or remove them")


def _labels_of(corpus: Corpus) -> Corpus:
    """The corpus without its inputs: to hold some out would copy all the others."""

    def labels(part: Dataset) -> Dataset:
        return dataclasses.replace(part, inputs=np.zeros((len(part), 0), np.float32))

    test = None if corpus.test is None else labels(corpus.test)
    return dataclasses.replace(corpus, train=labels(corpus.train), test=test)


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
    choose_passes(second)
    split = draw(after, with_test_set(after, _labels_of(draft.corpus)))
    choose_training(second, split, device_of(config.device).type)
    return second
