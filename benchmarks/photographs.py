"""Features of CIFAR-10 photographs from a backbone that never saw their classes' labels.

A WRN-28-2 learns five classes of CIFAR-10 (those of even number) with their labels; its 128 features of the other five
classes' test photographs are the vectors of a task that it was not trained for. Photographs are halved to 16×16 pixels,
which makes it minutes of a CPU.
"""

import tempfile
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from normatch import load
from normatch.augment import AugmentConfig
from normatch.config import Config
from normatch.data import load_corpus
from normatch.methods.parts.groups import OptimConfig
from normatch.nets.inference import features
from normatch.training import train
from normatch.training.progress import shown

__all__ = ["halve", "photograph_features", "read_photographs"]

Images = NDArray[np.uint8]
Labels = NDArray[np.int64]

SOURCE = (0, 2, 4, 6, 8)
"""airplane, bird, deer, frog, ship; the task has automobile, cat, dog, horse, truck."""
SOURCE_ITEMS = 10_000
"""Training photographs of the source classes, the first ones."""
STEPS = 1000
"""Training steps of 64 photographs."""


def photograph_features(cifar10: Path, run: Path) -> tuple[NDArray[np.float32], Labels]:
    """Features (5000, 128) of the test photographs of the five other classes, and those classes from 0 to 4.

    ``cifar10`` holds the data set as `normatch data get cifar10` leaves it, or as lossless WebP mosaics; ``run`` is the
    backbone's run, trained into that folder where it is not there yet.
    """
    (images, labels), (test_images, test_labels) = read_photographs(cifar10)
    if not run.exists():
        source = np.flatnonzero(np.isin(labels, SOURCE))[:SOURCE_ITEMS]
        _train_backbone(halve(images[source]), np.searchsorted(SOURCE, labels[source]), run)
    task = np.flatnonzero(~np.isin(test_labels, SOURCE))
    inputs = torch.from_numpy(halve(test_images[task])).permute(0, 3, 1, 2)
    z = features(load(run, "cpu").model, inputs).numpy()
    return z, test_labels[task] // 2


def _train_backbone(images: Images, labels: Labels, run: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "source.npz"
        np.savez(path, images=images, labels=labels)
        config = Config(
            name="source",
            data=str(path),
            test_share=0.1,
            labels=None,
            method="supervised",
            backbone="wrn-28-2",
            norm_momentum=0.01,
            augment=AugmentConfig(pad=2),
            steps=STEPS,
            epoch=250,
            optim=OptimConfig(lr=0.06),
            ema=0.99,
            ema_ramp=True,
        )
        with shown("backbone") as progress:
            print(train(config, run, progress=progress).describe())


def halve(images: Images) -> Images:
    """(N, 32, 32, 3) to (N, 16, 16, 3): the mean of each 2×2 pixels."""
    means = images.reshape(len(images), 16, 2, 16, 2, 3).mean((2, 4))
    return np.asarray(np.rint(means), dtype=np.uint8)


def read_photographs(folder: Path) -> tuple[tuple[Images, Labels], tuple[Images, Labels]]:
    if not (folder / "train_labels.npy").is_file():
        corpus = load_corpus("cifar10", folder)
        assert corpus.test is not None
        train, test = (np.asarray(part.inputs) for part in (corpus.train, corpus.test))
        return (train, corpus.train.labels), (test, corpus.test.labels)
    train = np.concatenate([_mosaic(folder / f"train_{i}.webp") for i in range(1, 6)])
    labels, test_labels = (np.load(folder / f"{part}_labels.npy").astype(np.int64) for part in ("train", "test"))
    return (train, labels), (_mosaic(folder / "test.webp"), test_labels)


def _mosaic(path: Path) -> Images:
    """100×100 tiles of 32×32 pixels, row by row."""
    tiles: Images = np.asarray(Image.open(path).convert("RGB"))
    return tiles.reshape(100, 32, 100, 32, 3).transpose(0, 2, 1, 3, 4).reshape(10_000, 32, 32, 3)
