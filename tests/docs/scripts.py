"""The scripts of ``benchmarks``, which are no package, and what their methods are tried with."""

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from normatch import Config, recipes
from normatch.data import Corpus, Dataset
from normatch.methods import methods
from normatch.methods.normatch import NorMatchSettings
from normatch.nets import backbones

__all__ = ["BENCHMARKS", "brief", "load_script", "noise", "put_registries_back"]

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def load_script(name: str) -> ModuleType:
    """The script as a module of its own, whatever other tests have changed in theirs."""
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def put_registries_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let methods and networks that are added from now on be there for the time of a test."""
    for registry in (methods, backbones):
        registry.names()  # so that it has been filled
        monkeypatch.setattr(registry, "_things", dict(registry._things))


def noise() -> Corpus:
    """40 images of noise to train with and 20 to test with, of ten classes."""
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (60, 16, 16, 3), dtype=np.uint8), np.arange(60) % 10
    classes = tuple(map(str, range(10)))
    return Corpus("noise", Dataset(images[:40], labels[:40], classes), Dataset(images[40:], labels[40:], classes))


def brief(method: str, steps: int) -> Config:
    """A few small steps of a variant of NorMatch."""
    settings = NorMatchSettings(passes="shared")
    base = recipes.cifar10(10).replace(backbone="quick-resnet", settings=settings, batch=4, ratio=2, device="cpu")
    return base.replace(method=method, steps=steps, epoch=1, log_every=1)
