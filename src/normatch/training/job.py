"""Prepare a config for training: read data, draw labels, build the method. Errors are raised here, before a folder is
made."""

import math
import time
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from normatch.augment import Views, check_view
from normatch.config import Config
from normatch.data import UNKNOWN, Corpus, Dataset, Reading, Split, digest, draw_split, hold_out, load_corpus
from normatch.data.dataset import LARGE, pieces
from normatch.data.images import DEFAULT, SIZES
from normatch.data.manifest import is_manifest
from normatch.errors import UserError
from normatch.methods import Method, Task, methods
from normatch.nets import PRETRAINED, Backbone, find_backbone, suitable_backbone
from normatch.nets.frozen import FROZEN, TUNED, Frozen, plain_name
from normatch.nets.model import Model, ModelSpec, load_model
from normatch.nets.weights import load_weights
from normatch.seeding import derive
from normatch.training.bank import Bank, embedded, features_of, joined
from normatch.training.feed import stays_on_host
from normatch.training.label_file import must_be_runs_on, read_label_files, with_labels
from normatch.training.progress import Progress, quiet
from normatch.training.run import STAYED, Moved, Run
from normatch.training.runtime import Runtime

__all__ = [
    "Job",
    "corpus_of",
    "draw",
    "frozen_features",
    "must_have_classes",
    "open_corpus",
    "prepare",
    "untrained_start",
    "with_test_set",
]


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
    samples: Corpus
    """What is trained on: ``corpus`` or, with a frozen backbone, its features."""
    frozen: Model | None = None
    """The model from images on, if its backbone is frozen; ``method`` has the one of features."""
    bank: Bank | None = None
    """Features of the views of each training image, if there are any."""
    start: Model | None = None
    """The model that training starts from, of another run."""
    embedding_seconds: float = 0.0
    """What they and the features of all images took, which is little if they were cached."""

    @property
    def held_out(self) -> dict[str, Dataset]:
        """Held-out samples whose class is known, by name ("test", "validation")."""
        return self.held_out_of(self.samples)

    def held_out_of(self, corpus: Corpus) -> dict[str, Dataset]:
        """The same of ``corpus`` or of ``samples``."""
        parts, test = {}, corpus.test
        if test is not None and len(known := np.flatnonzero(test.labels != UNKNOWN)):
            parts["test"] = test if len(known) == len(test) else test.view(known)
        if len(self.split.validation):
            parts["validation"] = corpus.train.view(self.split.validation)
        return parts

    @property
    def backbone(self) -> str:
        """The name in the config, where "auto" is decided."""
        found = plain_name((self.frozen or self.method.model).spec.backbone)
        return found if self.config.backbone == "auto" else self.config.backbone

    def whole(self, model: Model) -> Model:
        """The model that is saved, of what the method has trained."""
        return model if self.frozen is None else joined(self.frozen, model)

    def must_continue(self, state: dict[str, Tensor]) -> None:
        """Raise UserError if a checkpoint was trained on the features of other weights than these."""
        ours = self.method.model.normalise
        theirs = state.get("method/model.normalise.mean", ours.mean).to(ours.mean)
        # Not exactly: another device, or another number of threads, rounds otherwise.
        if self.frozen is not None and not torch.allclose(theirs, ours.mean, atol=0.01 * float(ours.std.mean())):
            raise UserError(
                f"the features of backbone {self.backbone!r} are not those that the run was started with: give "
                "--weights as it was, or start another run with another --out"
            )


def open_corpus(config: Config, reading: Reading = DEFAULT, *, largest: int = SIZES[-1]) -> Corpus:
    """The data that the config names, as it is: :func:`with_test_set` holds out the test set of a run.

    The two are separate because one reading serves runs of any ``seed`` and ``test_share``. ``largest`` is as for
    :func:`normatch.data.load_corpus`.
    """
    corpus = load_corpus(
        config.data,
        config.data_root,
        unlabelled=config.unlabelled,
        image_size=config.image_size,
        largest=largest,
        on_bad=config.on_bad_image,
        reading=reading,
    )
    must_have_classes(corpus)
    return corpus


def must_have_classes(corpus: Corpus) -> None:
    """Raise UserError unless there are two classes or more."""
    classes = corpus.train.classes
    if len(classes) < 2:
        has = f"only one class, {classes[0]!r}" if classes else "no labelled sample"
        raise UserError(f"{corpus.name} has {has}: label samples of at least two classes")


def with_test_set(config: Config, corpus: Corpus, begun: Run | None = None) -> Corpus:
    """The corpus of a run: with ``test_share``, some samples are held out by seed as its test set.

    Then others have the labels that label files add, or that those of the run that was ``begun`` have added. So these
    do not change what is held out.
    """
    held = hold_out(corpus, config.test_share, config.seed) if config.test_share else corpus
    return with_labels(held, read_label_files(config.labelled, held) if begun is None else begun.added_labels)


def corpus_of(run: Run, moved: Moved = STAYED, reading: Reading = DEFAULT) -> Corpus:
    """The data of a run, read again; UserError if it has changed since."""
    config = moved.applied_to(run.config)
    corpus = with_test_set(config, open_corpus(config, reading), run)
    run.must_be_its_data(corpus)
    return corpus


def draw(config: Config, corpus: Corpus) -> Split:
    """Draw the labelled, unlabelled and validation samples of a run; UserError if the method lacks unlabelled ones."""
    # Tables of files alone add to the labels that there are; with a run, they add to the run's.
    instead = config.labelled and not all(is_manifest(place.expanduser()) for place in config.labelled)
    named = np.array(list(read_label_files(config.labelled, corpus)), np.int64) if instead else None
    split = draw_split(
        corpus,
        config.labels,
        config.seed,
        validation=config.validation,
        include_labelled=config.include_labelled,
        fold=config.fold,
        named=named,
    )
    if methods.get(config.method).views.unlabelled and not len(split.unlabelled):
        raise UserError(
            f"method {config.method!r} needs unlabelled samples, and there are none: add some, "
            "set include_labelled, or choose a method that learns from labels alone"
        )
    return split


def prepare(
    config: Config,
    corpus: Corpus | None = None,
    *,
    begun: Run | None = None,
    pretrained: bool = True,
    start: Model | None = None,
    reading: Reading = DEFAULT,
    progress: Progress = quiet,
) -> Job:
    """Read the data, check the config and build the method. Initial weights are a function of the seed alone.

    With a frozen backbone, the features of all images are computed here, and shown in ``progress``.

    ``corpus``: the config's data if already read, as by :func:`open_corpus`; its test set is held out here.
    ``begun``: the run that is resumed, with the split that was drawn when it began.
    ``start``: the model to start from, if that run is still to be trained.
    ``pretrained``: load the backbone's pretrained weights, if any; needless if a checkpoint will be loaded.
    """
    runtime = Runtime.of(config)
    runtime.world.must_share(config)
    everything = corpus or open_corpus(config, reading)
    corpus = with_test_set(config, everything, begun)
    if begun is None:
        if not config.copies:  # which have augmentations of both kinds
            config.augment.must_suit(images=corpus.train.is_images and not config.freeze, frozen=config.freeze)
        must_be_runs_on(config.labelled, corpus)
        split = draw(config, corpus)
    else:
        begun.must_be_its_data(corpus)
        split = begun.split
    frozen, bank, samples, embedding_seconds = None, None, corpus, 0.0
    if config.freeze:
        begin = time.perf_counter()
        runtime = runtime.with_threads(math.inf)  # most of the work is to embed, for which all cores count
        frozen = _frozen_model(config, corpus.train).to(runtime.device)
        samples, bank = embedded(config, everything, corpus, frozen, runtime, reading, progress)
        embedding_seconds = time.perf_counter() - begin
    on_host = bank is None and stays_on_host(config.pool, samples, runtime.device, runtime.world)
    before = None if config.start is None or start is not None else Run.open(config.start.expanduser())
    if before is not None:
        start = load_model(before.path)
    backbone = "mlp" if config.freeze else config.backbone
    if start is not None:
        if plain_name(start.spec.backbone).startswith("onnx:"):
            raise UserError(f"start is {config.start}, whose backbone is an ONNX network, which cannot be trained")
        frozen_before = start.spec.backbone.startswith(f"{FROZEN}:")
        backbone = f"{TUNED}:{plain_name(start.spec.backbone)}" if frozen_before else start.spec.backbone
    elif backbone == "auto":
        backbone = suitable_backbone(samples.train.shape, quick=not runtime.on_gpu)
    spec = _model_spec(config, backbone, samples.train)
    if start is not None:
        spec = _continued(config, start.spec, spec)
        if before is not None and begun is None:
            _must_not_have_learnt(before, config, corpus, split)
    elif config.norm_momentum == 0 and config.weights is None and find_backbone(backbone).statistics is None:
        raise UserError(
            f"norm_momentum is 0, which keeps statistics, but backbone {backbone!r} has no pretrained weights: give a "
            "number above 0, or --weights or --start"
        )
    counts = np.bincount(corpus.train.labels[split.labelled], minlength=len(spec.classes))
    prior = tuple((counts / counts.sum()).tolist())
    task = Task(prior, len(split.labelled), len(split.unlabelled), config.epoch, config.steps)
    with torch.random.fork_rng([]):
        torch.default_generator.manual_seed(derive(config.seed, "weights"))
        model = Model(spec)
        if start is not None:
            _begin_as(model, start)
        elif pretrained and not config.freeze:
            _load(model.backbone, config)
        method = methods.get(config.method)(model, task, config.settings)
    _must_be_trained(method, config)
    kinds = {*method.views.labelled, *method.views.unlabelled}
    for kind in kinds:
        check_view(kind)
    if begun is None:
        config.augment.must_show(kinds, config.method)
    centre, scale = None, None
    if not samples.train.is_images:  # views of vectors are scaled by the statistics of the data
        centre, scale = (torch.from_numpy(v).float().to(runtime.device) for v in _statistics(samples.train))
    views = Views(spec.shape, config.augment, centre=centre, scale=scale, copies=config.copies)
    runtime = runtime.with_threads(_work(method, config))
    method.to(runtime.device)
    if runtime.on_gpu and len(spec.shape) == 3:
        method.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    start = start.to(runtime.device) if start is not None else None
    return Job(config, corpus, split, runtime, views, method, on_host, samples, frozen, bank, start, embedding_seconds)


def frozen_features(config: Config, images: Dataset) -> NDArray[np.float32]:
    """The features (N, D) of images that a run with a frozen backbone learns from. They are not cached: some images of
    many would push larger entries out."""
    runtime = Runtime.of(config).with_threads(math.inf)
    model = _frozen_model(config, images).to(runtime.device)
    reading = Reading(cache=False)
    return features_of(model, images, config.augment, 0, config.seed, runtime, reading, lambda n: None)[:, 0]


def untrained_start(config: Config, images: Dataset) -> Model:
    """A model like that with which a run with a frozen backbone ends, of random weights."""
    with torch.random.fork_rng([]):
        return Model(_model_spec(config, f"{FROZEN}:{config.backbone}", images))


def _must_not_have_learnt(before: Run, config: Config, corpus: Corpus, split: Split) -> None:
    """Raise UserError if the run to start from has learnt labels that are held out here."""
    same = not (config.validation or config.test_share) or before.digest == digest(corpus)
    if config.test_share and not same and before.config.data == config.data:
        raise UserError(
            f"start is {config.start}, which had other test samples, and so may have learnt some of those here: give "
            f"--seed {before.config.seed} and --test-share {before.config.test_share} as it had, or train it again"
        )
    if same and len(np.intersect1d(before.split.labelled, split.validation)):
        raise UserError(
            f"start is {config.start}, which has learnt labels that are held out here: give --seed "
            f"{before.config.seed} and --validation {before.config.validation} as it had"
        )


def _continued(config: Config, start: ModelSpec, wanted: ModelSpec) -> ModelSpec:
    """The spec of a network that starts from another run's; UserError if that one is for other data or methods."""
    if config.backbone not in ("auto", name := plain_name(start.backbone)):
        raise UserError(f"start is {config.start}, whose backbone is {name!r}: leave out --backbone {config.backbone}")
    what = {"shape": "samples of shape", "classes": "the classes", "head": "the head"}
    for field, said in what.items():
        ours, theirs = getattr(wanted, field), getattr(start, field)
        if ours != theirs:
            shown = [", ".join(map(str, value)) if isinstance(value, tuple) else value for value in (theirs, ours)]
            remedy = "start from a run on this data" if field in ("shape", "classes") else "choose its --method"
            raise UserError(f"start is {config.start}, of {said} ({shown[0]}), not ({shown[1]}): {remedy}")
    ours = {"backbone": wanted.backbone, "auxiliary": wanted.auxiliary, "norm_momentum": config.norm_momentum}
    return replace(start, **ours, temperature=None)


def _begin_as(model: Model, start: Model) -> None:
    """Give the model the weights of its start; auxiliary classifiers that are others than there remain new."""
    given = start.state_dict()
    if model.spec.auxiliary != start.spec.auxiliary:
        others = {name: value for name, value in given.items() if not name.startswith("auxiliary.")}
        given = others | {f"auxiliary.{name}": value for name, value in model.auxiliary.state_dict().items()}
    model.load_state_dict(given)


def _load(backbone: Backbone, config: Config) -> None:
    if config.weights is None:
        backbone.load_pretrained()
    else:
        load_weights(backbone, config.weights.expanduser())


def _frozen_model(config: Config, images: Dataset) -> Model:
    """The model of a frozen backbone, from images on, with its weights; UserError if there are none."""
    if not images.is_images:
        raise UserError("freeze is on, but the data are feature vectors already: leave it out")
    name = PRETRAINED if config.backbone == "auto" else config.backbone
    if config.weights is None and find_backbone(name).statistics is None:
        raise UserError(
            f"freeze is on, but backbone {name!r} has no pretrained weights: give them with --weights FILE, or choose "
            f"--backbone {PRETRAINED}"
        )
    with torch.random.fork_rng([]):
        model = Model(_model_spec(config, f"{FROZEN}:{name}", images))
    _load(model.backbone, config)
    assert isinstance(model.backbone, Frozen)
    if saved_as := model.backbone.embedder.saved_as:
        model.spec = replace(model.spec, backbone=f"{FROZEN}:{saved_as}")
    return model.eval()


def _work(method: Method, config: Config) -> float:
    """Of one step: images × weights of the backbone × pixels."""
    images = config.batch * (1 + config.ratio * bool(method.views.unlabelled))
    weights = sum(p.numel() for p in method.model.backbone.parameters())
    return float(images * weights * math.prod(method.model.spec.shape[1:]))


def _must_be_trained(method: Method, config: Config) -> None:
    """Raise UserError unless the method's groups have each parameter that requires a gradient once, and no other, and
    Muon some if it has a learning rate."""
    groups = method.groups(config.optim)
    given = [id(p) for group in groups for p in group.params]
    for name, p in method.named_parameters():
        if p.requires_grad and (times := given.count(id(p))) != 1:
            raise UserError(
                f"method {config.method!r} gives parameter {name!r} to {times} optimisers: put it into one group of "
                "groups(), or call requires_grad_(False) if it is not trained"
            )
    if not {id(p) for p in method.parameters()}.issuperset(given):
        raise UserError(
            f"groups of method {config.method!r} have a parameter that is not the method's, so that no checkpoint "
            "would have it: make its module an attribute of the method"
        )
    if config.optim.muon and not any(group.rule == "muon" for group in groups):
        raise UserError(
            f"optim.muon is {config.optim.muon}, but method {config.method!r} gives Muon nothing to train with "
            f"backbone {method.model.spec.backbone!r}, such as convolutions: set it to 0"
        )


def _model_spec(config: Config, backbone: str, train: Dataset) -> ModelSpec:
    """The spec of a network for the data, with the heads that the method needs."""
    expected = find_backbone(backbone).statistics
    head, auxiliary = methods.get(config.method).heads(config.settings)
    mean, std = expected(train.shape) if expected else (tuple(v.tolist()) for v in _statistics(train))
    return ModelSpec(
        backbone=backbone,
        shape=train.shape,
        classes=train.classes,
        mean=mean,
        std=std,
        norm_momentum=config.norm_momentum,
        head=head,
        auxiliary=auxiliary,
    )


def _statistics(dataset: Dataset) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation of each channel or feature; a constant one has deviation 1."""
    inputs = dataset.inputs
    if dataset.is_images:
        # From the counts of the 256 grey levels: exact, and in pieces, without a float copy of the images.
        levels, counts = np.arange(256.0), np.zeros((inputs.shape[3], 256), dtype=np.int64)
        # Of a large data set, from evenly spaced pieces: from all it would take as long as an epoch.
        for rows in islice(pieces(inputs), 0, None, max(1, len(inputs) // LARGE)):
            part = inputs[rows]
            counts += [np.bincount(part[..., c].ravel(), minlength=256) for c in range(inputs.shape[3])]
        mean = np.array([np.average(levels, weights=n) for n in counts])
        std = np.array([np.average((levels - m) ** 2, weights=n) ** 0.5 for m, n in zip(mean, counts, strict=True)])
    else:
        vectors = np.asarray(inputs)
        mean, std = vectors.mean(0, dtype=np.float64), vectors.std(0, dtype=np.float64)
    return mean, np.where(std > 0, std, 1.0)
