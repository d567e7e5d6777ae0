"""The training loop: steps, with evaluations, records, warnings and checkpoints when due."""

import contextlib
import math
import threading
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from normatch.data import UNKNOWN, Dataset, HostPool, Pool
from normatch.errors import UserError
from normatch.methods import Embedding, Method
from normatch.nets.model import features, logits
from normatch.seeding import derive, sample
from normatch.training import checkpoint
from normatch.training.diagnostics import NOT_FINITE, Case, Diagnosis
from normatch.training.feed import make_pool
from normatch.training.job import Job
from normatch.training.metrics import Record
from normatch.training.progress import Progress
from normatch.training.recorder import Recorder
from normatch.training.step import Step

__all__ = ["Loop", "accuracy"]

LABELLED_SAMPLE = 256
"""Number of labelled items, drawn by the run's seed, whose accuracy shows whether a run fits its labels at all."""


class Loop:
    """Trains a job: steps, with evaluations, records and checkpoints when due."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.config = job.config
        self.pool = self._pool_of(job.corpus.train)
        self.step = Step(job.method, job.config, job.runtime, job.views, self.pool, job.split)
        self.diagnosis = Diagnosis(Case.of(job))
        self.seconds = 0.0
        """Training time up to the newest record, over all starts of the run."""
        labelled = job.split.labelled
        self._fitted = self.pool.subset(labelled[sample(len(labelled), LABELLED_SAMPLE, job.config.seed, "fitted")])
        self.held_out: dict[str, Pool | HostPool] = {}
        """Held-out items whose class is known, by name ("test", "validation")."""
        self.test: Pool | HostPool | None = None
        """The whole test set, of which some classes may not be known."""
        test = job.corpus.test
        if test is not None:
            self.test = self._pool_of(test)
            known = np.flatnonzero(test.labels != UNKNOWN)
            if len(known):
                self.held_out["test"] = self.test if len(known) == len(test) else self.test.subset(known)
        if len(job.split.validation):
            self.held_out["validation"] = self.pool.subset(job.split.validation)

    def _pool_of(self, dataset: Dataset) -> Pool | HostPool:
        """A pool of the data set's items, on the device or in host memory, wherever this run keeps its inputs."""
        return make_pool(dataset, self.job.runtime.device, self.job.on_host)

    def run(
        self, recorder: Recorder, progress: Progress, checkpoints: Path | None, stop: threading.Event | None = None
    ) -> None:
        """Train to the last step, with checkpoints in the folder ``checkpoints``, or none if it is None.

        Once ``stop`` is set, the present step is the last: its checkpoint is written, and KeyboardInterrupt raised.
        """
        config, step = self.config, self.step
        self._begin(recorder, progress)
        clock = _Clock(self.seconds, step.done)
        with contextlib.ExitStack() as stack:
            stack.callback(step.feed.close)
            writer = None if checkpoints is None else stack.enter_context(checkpoint.Writer(checkpoints))
            while step.done < config.steps:
                if step.done % config.epoch == 0:
                    self.begin_epoch(step.done // config.epoch)
                step()
                record = self._metrics_due(clock)
                if record:
                    self.seconds = clock.seconds
                    recorder.write(step.done, Record(seconds=self.seconds) | record)
                    progress(step.done, config.steps, record)
                    self._diagnose(record, recorder, progress)
                stopped = stop is not None and stop.is_set() and step.done < config.steps
                if stopped or self._due(config.checkpoint_every):
                    if not _finite(step.method):
                        # The loss would show non-finite weights only one step later, and running statistics never.
                        self._diagnose({"loss": None}, recorder, progress)
                    if writer is not None:
                        writer.save(step.done, step.state())
                if stopped:
                    raise KeyboardInterrupt

    def _begin(self, recorder: Recorder, progress: Progress) -> None:
        """Prepare for the first step, and report the warnings that are known before it."""
        self.step.method.train()
        self.step.progress = progress
        if self.step.runtime.eager_because:
            progress.note(f"steps run eagerly: {self.step.runtime.eager_because}")
        recorder.warn(self.diagnosis.alarms)
        for alarm in self.diagnosis.alarms:
            progress.warn(alarm)

    def begin_epoch(self, epoch: int) -> None:
        """Call the method's hook; what it draws is a function of the seed and the epoch, as each step's draws are."""
        self.step.runtime.seed(derive(self.config.seed, "epoch", epoch))
        self.step.method.begin_epoch(epoch, self._embed)

    def _due(self, every: int | None) -> bool:
        """Whether something is due after this step: every ``every`` steps (None: once an epoch), and after the last."""
        return self.step.done == self.config.steps or self.step.done % (every or self.config.epoch) == 0

    def _metrics_due(self, clock: "_Clock") -> Record:
        """The metrics that are due after this step; empty after most steps."""
        record: Record = {}
        if self._due(self.config.log_every):
            self.step.draw_ahead()
            record |= self.step.meter.read()
            record["steps_per_second"] = clock.speed(self.step.done)
        if self._due(self.config.evaluate_every):
            record |= self.examine()
        return record

    def examine(self) -> Record:
        """What is recorded at each evaluation: accuracy on held-out and on labelled samples.

        If logits are not finite, the loss is not either: finite weights may be so large.
        """
        found = self.evaluate() | {"labelled/accuracy": self._accuracy(self._fitted)}
        return {"loss": None} if any(map(math.isnan, found.values())) else dict(found)

    def evaluate(self) -> dict[str, float]:
        """Accuracy of the averaged weights on held-out images; it is only reported, and selects nothing."""
        return {f"{name}/accuracy": self._accuracy(items) for name, items in self.held_out.items()}

    def _accuracy(self, items: Pool | HostPool) -> float:
        return accuracy(logits(self.step.ema.model, items.inputs), items.labels)

    def _diagnose(self, record: Record, recorder: Recorder, progress: Progress) -> None:
        """Report new alarms; non-finite values end the run before a checkpoint stores them."""
        new = self.diagnosis.see(self.step.done, record)
        if new:
            recorder.warn(self.diagnosis.alarms)
        for alarm in new:
            progress.warn(alarm)
            if alarm.name == NOT_FINITE:
                raise UserError(f"training stopped at step {alarm.step}: {alarm.message}; {alarm.remedy}")

    def _embed(self) -> Embedding:
        labelled, unlabelled = (self.pool.subset(at) for at in (self.job.split.labelled, self.job.split.unlabelled))
        z, z_unlabelled = (features(self.step.ema.model, pool.inputs) for pool in (labelled, unlabelled))
        return Embedding(z, labelled.labels, z_unlabelled)


def accuracy(z: Tensor, labels: Tensor) -> float:
    """The share of samples whose largest logit is that of their class; those without a class do not count.

    NaN if a logit is not finite.
    """
    if not z.isfinite().all():
        return math.nan
    known = labels != UNKNOWN
    return (z.argmax(1) == labels)[known].double().mean().item()


class _Clock:
    """The training time of a run over all its starts, and the speed of its steps."""

    def __init__(self, seconds: float, done: int) -> None:
        now = time.perf_counter()
        self._start, self._last, self._done = now - seconds, now, done

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._start

    def speed(self, done: int) -> float:
        """Steps per second since the last call."""
        now = time.perf_counter()
        speed = (done - self._done) / (now - self._last)
        self._last, self._done = now, done
        return speed


def _finite(method: Method) -> bool:
    """Whether all that is trained, and all that is saved of the model, such as running statistics, is finite.

    Not the method's own buffers, which may hold infinity on purpose.
    """
    tensors = dict(method.named_parameters()) | method.model.state_dict(prefix="model.")
    return bool(torch.stack([tensor.isfinite().all() for tensor in tensors.values()]).all())
