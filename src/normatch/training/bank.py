"""The features that a frozen embedder makes of every image, and of several views of it: computed once, and cached."""

import copy
import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from typing import IO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from normatch.annotations import to_json
from normatch.augment import AugmentConfig, Views
from normatch.config import Config
from normatch.data import Corpus, Dataset, Pool, Reading, hold_out
from normatch.data.cache import Cache, Found
from normatch.data.dataset import Selected, pieces
from normatch.errors import UserError
from normatch.nets.frozen import Frozen
from normatch.nets.model import Model, batch_for, contiguous
from normatch.seeding import derive
from normatch.training.progress import Progress
from normatch.training.runtime import Runtime

__all__ = ["BankPool", "batch_to_embed", "embed", "embedded", "features_of", "joined"]

BATCH = 32
"""Images that go through the embedder at once on a CPU, where more do not fit its cache."""

GPU_BATCH, GPU_PIXELS = 512, 2**23
"""The most images, and the most pixels, that go through it at once on a GPU: 327 images of 160 × 160. EfficientNet-Lite
has 250 bytes of activations a pixel at once, so this takes 2 GB, and its kernels take longer than their launches."""

VERSION = 1
"""Part of the keys of cached features: increment it when the same embedder would give others."""

Bank = NDArray[np.float32]
"""(N, 1 + 2 · copies, D): features of each image, of its weak views and of its strong ones."""


def batch_to_embed(shape: tuple[int, ...], device: torch.device) -> int:
    """How many images of this shape go through an embedder at once. Not by the memory that is free: with copies, what
    is drawn depends on it.

    >>> batch_to_embed((3, 160, 160), torch.device("cpu")), batch_to_embed((3, 160, 160), torch.device("cuda"))
    (32, 327)
    """
    return batch_for(shape, BATCH) if device.type == "cpu" else batch_for(shape, GPU_BATCH, GPU_PIXELS)


@torch.no_grad()
def embed(
    model: Model, images: Dataset, views: Views, copies: int, seed: int, done: Callable[[int], None] = lambda n: None
) -> Bank:
    """The embedder's features of each image, of ``copies`` weak views and as many strong ones.

    In float32, as a saved model predicts: those of EfficientNet-Lite0 in bfloat16 are off by 7 % of their deviation.
    ``done`` is called with the number of images of each batch when they are computed. What is drawn is a function of
    the seed and the batch.
    """
    assert isinstance(model.backbone, Frozen)
    embedder = model.backbone.embedder
    device = model.normalise.mean.device
    kinds = ["none", *["weak"] * copies, *["strong"] * copies]
    size = batch_to_embed(images.shape, device)
    bank = np.empty((len(images), len(kinds), embedder.features), np.float32)
    for start, part in zip(range(0, len(images), size), Selected.of(images.inputs).split(size), strict=True):
        generator = torch.Generator(device).manual_seed(derive(seed, "bank", start))
        batch = contiguous(part.to(device))
        for at, kind in enumerate(kinds):
            view = model.normalise(views(kind, batch, generator)).contiguous(memory_format=torch.channels_last)
            bank[start : start + len(part), at] = embedder(view).float().cpu().numpy()
        done(len(part))
    if not np.isfinite(bank).all():
        raise UserError(f"the weights of {model.spec.backbone} give features that are not finite: choose others")
    return bank


def features_of(
    model: Model,
    images: Dataset,
    augment: AugmentConfig,
    copies: int,
    seed: int,
    runtime: Runtime,
    reading: Reading,
    done: Callable[[int], None],
) -> Bank:
    """:func:`embed` on the device and with the threads of ``runtime``, from the cache if they are there."""
    assert isinstance(model.backbone, Frozen)
    form = (1 + 2 * copies, model.backbone.embedder.features, 4)  # a float32 is four bytes: kept as pixels are
    cache = Cache() if reading.cache else None
    key = _key(model, images, augment if copies else None, copies, seed if copies else 0, runtime) if cache else ""

    def make(done: Callable[[int], None]) -> Bank:
        with runtime.scope():
            return embed(model, images, Views(images.shape, augment), copies, seed, done)

    def write(file: IO[bytes]) -> Found:
        def shown(n: int) -> None:
            os.utime(file.name)  # else another process would take the file for abandoned, and delete it
            done(n)

        file.write(make(shown).tobytes())
        return np.zeros(len(images), np.uint8), {}, True

    if cache is None:
        return make(done)
    found = cache.open(key, form) or cache.write(key, form, write)
    return np.ascontiguousarray(found.images).view(np.float32)[..., 0]


def _key(model: Model, images: Dataset, augment: AugmentConfig | None, copies: int, seed: int, runtime: Runtime) -> str:
    """Of all that the features depend on: weights, images, views, and what computes them."""
    what = (VERSION, model.spec.backbone, images.inputs.shape, copies, seed, augment and to_json(augment))
    found = hashlib.blake2b(repr((*what, runtime.describe(), torch.__version__)).encode(), digest_size=16)
    weights = {**model.normalise.state_dict(), **model.backbone.embedder.state_dict()}  # type: ignore[union-attr]
    for name, value in weights.items():
        found.update(name.encode() + np.ascontiguousarray(value.cpu().numpy()).tobytes())
    for rows in pieces(images.inputs):
        found.update(np.ascontiguousarray(images.inputs[rows]).data)
    return found.hexdigest()


def embedded(
    config: Config,
    everything: Corpus,
    corpus: Corpus,
    model: Model,
    runtime: Runtime,
    reading: Reading,
    progress: Progress,
) -> tuple[Corpus, Bank | None]:
    """The features of ``corpus`` and, with copies, of the views of its training images.

    Those of ``everything`` are computed, before a test set is held out: they serve runs of any seed.
    """
    # A test set that no run can be scored on is replaced by what is held out.
    parts = [part for part in everything.parts.values() if part is everything.train or not config.test_share]
    total, done = sum(map(len, parts)), 0

    def count(n: int) -> None:
        nonlocal done
        done += n
        progress.count("embedding images", done, total)

    def features(images: Dataset, copies: int) -> Dataset:
        """Its inputs are those of its views, one after the other, so that it can be split as images can."""
        bank = features_of(model, images, config.augment, copies, config.seed, runtime, reading, count)
        return replace(images, inputs=bank.reshape(len(images), -1))

    found = replace(everything, train=features(everything.train, config.copies), test=None)
    test = features(parts[1], 0) if len(parts) > 1 else None
    width = found.train.shape[0] // (1 + 2 * config.copies)
    if config.test_share:
        found = hold_out(found, config.test_share, config.seed)
        assert found.test is not None
        test = replace(found.test, inputs=np.asarray(found.test.inputs)[:, :width])
    bank: Bank = np.asarray(found.train.inputs).reshape(len(corpus.train), -1, width)
    plain = replace(corpus.train, inputs=np.ascontiguousarray(bank[:, 0]))
    return replace(corpus, train=plain, test=test), bank if config.copies else None


def joined(images: Model, vectors: Model) -> Model:
    """A copy of the frozen model ``images`` with what was trained on its features: from pixels to classes."""
    whole = copy.deepcopy(images)
    assert isinstance(whole.backbone, Frozen)
    whole.backbone.trunk.load_state_dict(vectors.backbone.state_dict())
    whole.backbone.mean.copy_(vectors.normalise.mean.flatten())
    whole.backbone.std.copy_(vectors.normalise.std.flatten())
    whole.head.load_state_dict(vectors.head.state_dict())
    whole.auxiliary.load_state_dict(vectors.auxiliary.state_dict())
    return whole.eval()


class BankPool(Pool):
    """A pool whose ``inputs`` are the plain images' features (N, D); a step draws all copies of a sample, of which its
    views pick one."""

    bank: Tensor

    def __init__(self, dataset: Dataset, bank: Bank, device: torch.device | str = "cpu") -> None:
        super().__init__(dataset, device)
        self.bank = torch.from_numpy(bank).to(device)

    def gather(self, index: Tensor) -> Tensor:
        """(B, copies, D) at the positions ``index`` (B,)."""
        return self.bank.index_select(0, index)
