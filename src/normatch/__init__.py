"""Train an image classifier from a handful of labels and many unlabelled images."""

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from normatch import recipes
    from normatch.autoconfig import plan
    from normatch.config import Config
    from normatch.errors import UserError
    from normatch.estimator import FixMatchClassifier, NorMatchClassifier, SemiSupervisedClassifier
    from normatch.evaluate.predict import Predictor, load
    from normatch.flow import NormalizingFlowClassifier
    from normatch.training.run import Run
    from normatch.training.train import train

# Read when torch is loaded: idle threads sleep. By default they spin, and where other programs keep the cores busy, a
# step of two threads then took up to thirty times as long as one of a single thread.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

__version__ = "0.1.0"

__all__ = [
    "Config",
    "FixMatchClassifier",
    "NorMatchClassifier",
    "NormalizingFlowClassifier",
    "Predictor",
    "Run",
    "SemiSupervisedClassifier",
    "UserError",
    "load",
    "plan",
    "recipes",
    "train",
]

# Public names are imported on first use, so that `import normatch` does not load torch and everything else.
_MODULES = {
    "autoconfig": ("plan",),
    "config": ("Config",),
    "errors": ("UserError",),
    "estimator": ("FixMatchClassifier", "NorMatchClassifier", "SemiSupervisedClassifier"),
    "evaluate.predict": ("Predictor", "load"),
    "flow": ("NormalizingFlowClassifier",),
    "training.run": ("Run",),
    "training.train": ("train",),
}


def __getattr__(name: str) -> Any:
    if name == "recipes":
        return importlib.import_module("normatch.recipes")
    for module, names in _MODULES.items():
        if name in names:
            return getattr(importlib.import_module(f"normatch.{module}"), name)
    raise AttributeError(f"module 'normatch' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
