"""Training: the only code that deals with devices, precision, graphs and run files; it knows no method by name."""

from normatch.engine.job import Job, open_corpus, prepare
from normatch.engine.loop import Loop
from normatch.engine.run import Run
from normatch.engine.train import train

__all__ = ["Job", "Loop", "Run", "open_corpus", "prepare", "train"]
