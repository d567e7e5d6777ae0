"""Named runs: each a function that returns a complete config."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from normatch.augment import AugmentConfig
from normatch.config import Config
from normatch.methods.normatch import NorMatchSettings
from normatch.methods.parts.groups import OptimConfig
from normatch.registry import Registry

__all__ = [
    "cifar10",
    "cifar10_fast",
    "cifar100",
    "digits",
    "mini_imagenet",
    "own",
    "recipes",
    "stl10",
    "svhn",
]


def digits(labels: int = 40, seed: int = 0) -> Config:
    """scikit-learn's 8×8 digits, a fifth of them held out for testing by seed: a minute on two CPU cores."""
    return Config(
        name=f"digits-{labels}",
        data="digits",
        test_share=0.2,
        labels=labels,
        seed=seed,
        backbone="small-wide",
        augment=AugmentConfig(flip=False),
        steps=600,
        epoch=60,
        batch=32,
        optim=OptimConfig(lr=0.06),
        log_every=25,
        ema=0.99,
        ema_ramp=True,
    )


def cifar10(labels: int = 40, seed: int = 0) -> Config:
    """CIFAR-10 as in the paper: WRN-28-2, 2^20 steps of 64 + 448 images."""
    return Config(name=f"cifar10-{labels}", data="cifar10", labels=labels, seed=seed)


def cifar10_fast(labels: int = 40, seed: int = 0) -> Config:
    """CIFAR-10 within ten minutes of an H200: a wide network of few layers, trained with Muon."""
    return Config(
        name=f"cifar10-{labels}-fast",
        data="cifar10",
        labels=labels,
        seed=seed,
        backbone="quick-resnet-wide",
        settings=NorMatchSettings(decide_after=0.6, adaptive=True, passes="shared"),
        augment=AugmentConfig(ops=3),
        steps=48 * 1024,
        epoch=512,
        optim=OptimConfig(lr=0.1, cosine=0.5, muon=0.015),
        evaluate_every=4 * 1024,
        checkpoint_every=8 * 1024,
    )


def cifar100(labels: int = 400, seed: int = 0) -> Config:
    """CIFAR-100 as in the paper: WRN-28-8, weight decay 1e-3."""
    return Config(
        name=f"cifar100-{labels}",
        data="cifar100",
        labels=labels,
        seed=seed,
        backbone="wrn-28-8",
        optim=OptimConfig(weight_decay=1e-3),
    )


def stl10(fold: int = 0, seed: int = 0) -> Config:
    """STL-10 as in the paper: ResNet-18, one of the ten folds of 1,000 labels, one-hot pseudo-labels."""
    return Config(
        name="stl10-1000",
        data="stl10",
        labels=None,
        fold=fold,
        seed=seed,
        backbone="resnet-18",
        settings=NorMatchSettings(pseudo_label="onehot"),
    )


def mini_imagenet(labels: int = 4000, seed: int = 0) -> Config:
    """Mini-ImageNet as in the paper: ResNet-18 on 84×84 pixels, 600 epochs."""
    return Config(
        name=f"mini-imagenet-{labels}",
        data="mini-imagenet",
        labels=labels,
        seed=seed,
        backbone="resnet-18",
        steps=600 * 1024,
    )


def svhn(labels: int = 40, seed: int = 0) -> Config:
    """Street-view house numbers: CIFAR-10's recipe without flips, which would change a digit."""
    return Config(name=f"svhn-{labels}", data="svhn", labels=labels, seed=seed, augment=AugmentConfig(flip=False))


def own(data: str | Path, seed: int = 0) -> Config:
    """Your own folder of class folders, CSV manifest or .npz: a draft that :func:`normatch.plan` completes.

    Call ``plan`` before ``train``, as ``normatch train --data`` does: it chooses image size, network, batch, steps and
    what is held out from the data and the machine. Without it, ``train`` takes images of up to 224 pixels, 4,096 steps
    of 64 labelled images and no test set, which is far too much without a GPU. What you change in the config, ``plan``
    keeps:

        plan = normatch.plan(normatch.recipes.own("pictures").replace(steps=200))
        normatch.train(plan.config, corpus=plan.corpus)
    """
    # Not Path.resolve, which raises for a symbolic link to itself; reading the data reports that properly.
    path = Path(os.path.realpath(data))
    # A folder's name has no suffix to strip: "shots.2023" and "shots.2024" must stay distinct.
    name = (path.name if path.is_dir() else path.stem) or "run"
    return Config(
        name="".join(c if c.isprintable() else "_" for c in name),
        data=str(data),
        labels=None,
        seed=seed,
        backbone="auto",
        norm_momentum=0.01,
        steps=4096,
        epoch=128,
        ema_ramp=True,
    )


@dataclass(frozen=True)
class Recipe:
    """A named run: its one-line summary and the function that builds its config."""

    summary: str
    build: Callable[[], Config]


recipes: Registry[Recipe] = Registry("recipe", package="normatch.recipes")


def _register(build: Callable[..., Config], *choices: int) -> None:
    """Add a recipe for each choice of the first argument: the number of labels, or the fold."""
    summary = (build.__doc__ or "").splitlines()[0]
    for choice in choices:
        config = partial(build, choice)
        recipes.add(config().name, Recipe(summary, config))


_register(digits, 40)
_register(cifar10, 40, 250, 4000)
_register(cifar10_fast, 40)
_register(cifar100, 400, 2500, 10000)
_register(mini_imagenet, 4000)
_register(svhn, 40, 250, 1000)
_register(stl10, 0)
