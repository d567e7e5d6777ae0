"""Semi-supervised methods, one file each, found by name."""

from normatch.methods.contract import Batch, Method, Outcome, PseudoLabels, Settings, Task, ViewsWanted, methods

__all__ = ["Batch", "Method", "Outcome", "PseudoLabels", "Settings", "Task", "ViewsWanted", "methods"]
