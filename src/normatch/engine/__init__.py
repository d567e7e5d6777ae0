"""Training: the only place that knows devices, precision, graphs and files of a run, and no method by name."""

from normatch.engine.job import Job, open_corpus, prepare
from normatch.engine.loop import Loop
from normatch.engine.run import Run
from normatch.engine.train import train

__all__ = ["Job", "Loop", "Run", "open_corpus", "prepare", "train"]
