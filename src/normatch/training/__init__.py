"""Training: the only code that deals with devices, precision, graphs and run files; it knows no method by name."""

from normatch.training.job import Job, open_corpus, prepare
from normatch.training.loop import Loop
from normatch.training.run import Run
from normatch.training.train import train

__all__ = ["Job", "Loop", "Run", "open_corpus", "prepare", "train"]
