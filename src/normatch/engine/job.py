"""A config made ready to train: data read, labels drawn, method built. What can be wrong is wrong here, before any
folder is made."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from normatch.augment import Views
from normatch.config import Config
from normatch.data import Corpus, Dataset, Reading, Split, draw_split, hold_out, load_corpus
from normatch.data.reading import DEFAULT
from normatch.engine.feed import stays_on_host
from normatch.engine.runtime import Runtime
from normatch.errors import UserError
from normatch.methods import Method, Task, methods
from normatch.model import Model, ModelSpec
from normatch.nets import find_backbone, suitable_backbone
from normatch.seeding import derive

__all__ = ["Job", "draw", "held_out", "open_corpus", "prepare"]


@dataclass(frozen=True)
class Job:
    """Everything that the training loop needs."""

    config: Config
    corpus: Corpus
    split: Split
    runtime: Runtime
    views: Views
    method: Method
    on_host: bool
    """Whether the inputs stay in host memory."""


def open_corpus(config: Config, reading: Reading = DEFAULT) -> Corpus:
    """The data of a run, with its test items held out where the data set brings none of its own."""
    corpus = load_corpus(
        config.data,
        config.data_root,
        unlabelled=config.unlabelled,
        image_size=config.image_size,
        on_bad=config.on_bad_image,
        reading=reading,
    )
    return held_out(config, corpus)


def held_out(config: Config, corpus: Corpus) -> Corpus:
    """The corpus with the run's own share of it set aside for testing."""
    classes = corpus.train.classes
    if len(classes) < 2:
        has = f"only one class, {classes[0]!r}" if classes else "no labelled item"
        raise UserError(f"{corpus.name} has {has}: label items of at least two classes")
    return hold_out(corpus, config.test_share, config.seed) if config.test_share else corpus


def draw(config: Config, corpus: Corpus) -> Split:
    """Who is labelled in this run; a method that learns from unlabelled items must have some."""
    split = draw_split(
        corpus,
        config.labels,
        config.seed,
        validation=config.validation,
        include_labelled=config.include_labelled,
        fold=config.fold,
    )
    if methods.get(config.method).views.unlabelled and not len(split.unlabelled):
        raise UserError(
            f"method {config.method!r} needs unlabelled items, and there are none: add some, "
            "set include_labelled, or choose a method that learns from labels alone"
        )
    return split


def prepare(config: Config, corpus: Corpus | None = None, *, pretrained: bool = True) -> Job:
    """Read, check and build. The first weights are a function of the seed alone.

    ``pretrained`` is whether a backbone that brings weights takes them in: no need of it where a checkpoint will.
    """
    runtime = Runtime.of(config)
    corpus = corpus or open_corpus(config)
    on_host = stays_on_host(config.pool, corpus, runtime.device)
    split = draw(config, corpus)
    method_type = methods.get(config.method)
    backbone = config.backbone
    if backbone == "auto":
        backbone = suitable_backbone(corpus.train.shape, quick=runtime.device.type == "cpu")
    centre, scale = _statistics(corpus.train)
    expected = find_backbone(backbone).statistics
    mean, std = expected(corpus.train.shape) if expected else (tuple(centre.tolist()), tuple(scale.tolist()))
    head, auxiliary = method_type.heads(config.settings)
    spec = ModelSpec(
        backbone=backbone,
        shape=corpus.train.shape,
        classes=corpus.train.classes,
        mean=mean,
        std=std,
        norm_momentum=config.norm_momentum,
        head=head,
        auxiliary=auxiliary,
    )
    task = Task(len(spec.classes), len(split.labelled), len(split.unlabelled), config.epoch, config.steps)
    with torch.random.fork_rng([]):
        torch.default_generator.manual_seed(derive(config.seed, "weights"))
        model = Model(spec)
        if pretrained:
            model.backbone.load_pretrained()
        method = method_type(model, task, config.settings)
    # The views of vectors go by the data's own statistics.
    units = [torch.from_numpy(v).float().to(runtime.device) for v in (centre, scale)]
    views = Views(spec.shape, config.augment, centre=units[0], scale=units[1])
    method.to(runtime.device)
    if runtime.device.type == "cuda" and len(spec.shape) == 3:
        method.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return Job(config, corpus, split, runtime, views, method, on_host)


def _statistics(dataset: Dataset) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation of each channel or feature; a constant one has deviation 1."""
    if dataset.is_images:
        # From the counts of the 256 grey levels: exact, and without a float copy of the images.
        levels = np.arange(256.0)
        counts = _grey_levels(dataset.inputs)
        mean = np.array([np.average(levels, weights=n) for n in counts])
        std = np.array([np.average((levels - m) ** 2, weights=n) ** 0.5 for m, n in zip(mean, counts, strict=True)])
    else:
        mean = dataset.inputs.mean(0, dtype=np.float64)
        std = dataset.inputs.std(0, dtype=np.float64)
    return mean, np.where(std > 0, std, 1.0)


def _grey_levels(images: NDArray[np.uint8], piece: int = 4096) -> NDArray[np.int64]:
    """(C, 256) how often each level occurs in each channel, by pieces: NumPy widens bytes to count them."""
    counts = np.zeros((images.shape[3], 256), dtype=np.int64)
    for start in range(0, len(images), piece):
        part = images[start : start + piece]
        counts += [np.bincount(part[..., c].ravel(), minlength=256) for c in range(images.shape[3])]
    return counts
