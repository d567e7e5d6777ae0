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

__all__ = ["Batch", "Embedding", "Method", "Outcome", "PseudoLabels", "Settings", "Task", "ViewsWanted", "methods"]
