"""Train an image classifier from a handful of labels and many unlabelled images."""

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from normatch import recipes
    from normatch.autoconfig import plan
    from normatch.config import Config
    from normatch.errors import UserError
    from normatch.estimator import FixMatchClassifier, NorMatchClassifier
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
    "UserError",
    "load",
    "plan",
    "recipes",
    "train",
]

# Public names are imported on first use, so that `import normatch` does not load torch and everything else.
_MODULES = {
    "Config": "normatch.config",
    "FixMatchClassifier": "normatch.estimator",
    "NorMatchClassifier": "normatch.estimator",
    "NormalizingFlowClassifier": "normatch.flow",
    "Predictor": "normatch.evaluate.predict",
    "Run": "normatch.training.run",
    "UserError": "normatch.errors",
    "load": "normatch.evaluate.predict",
    "plan": "normatch.autoconfig",
    "train": "normatch.training.train",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    if name == "recipes":
        return importlib.import_module("normatch.recipes")
    raise AttributeError(f"module 'normatch' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
