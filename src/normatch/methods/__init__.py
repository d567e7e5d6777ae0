"""Semi-supervised methods, one file each, found by name."""

from normatch.methods.base import (
    Batch,
    Embedding,
    Method,
    Outcome,
    PseudoLabels,
    Settings,
    Task,
    ViewsWanted,
    methods,
)
from normatch.methods.parts.weak_to_strong import Features, Pass, WeakToStrong, WeakToStrongSettings

__all__ = [
    "Batch",
    "Embedding",
    "Features",
    "Method",
    "Outcome",
    "Pass",
    "PseudoLabels",
    "Settings",
    "Task",
    "ViewsWanted",
    "WeakToStrong",
    "WeakToStrongSettings",
    "methods",
]
