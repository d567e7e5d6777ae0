"""The training loop: steps, with evaluations, records, warnings and checkpoints when due."""

import contextlib
import copy
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from normatch.data import Dataset, HostPool, Pool
from normatch.errors import UserError
from normatch.methods import Embedding, Method
from normatch.nets.model import Model, Splittable, features, logits
from normatch.seeding import derive, sample
from normatch.training import checkpoint
from normatch.training.bank import Bank, BankPool
from normatch.training.diagnostics import NOT_FINITE, Case, Diagnosis
from normatch.training.distributed import Part, PoolOf
from normatch.training.job import Job
from normatch.training.metrics import Record
from normatch.training.progress import Progress, quiet
from normatch.training.run import RunRecorder
from normatch.training.step import Step

__all__ = ["Loop"]

Samples = Pool | HostPool | Part

LABELLED_SAMPLE = 256
"""Number of labelled samples, drawn by the run's seed, whose accuracy shows whether a run fits its labels at all."""


class Loop:
    """Trains a job: steps, with evaluations, records and checkpoints when due."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.config = job.config
        self.world = job.runtime.world
        train, bank = job.samples.train, job.bank
        self.pool = self._shared(train, lambda part, own: self.pool_of(part, None if bank is None else bank[own]))
        self.step = Step(job.method, job.config, job.runtime, job.views, self.pool, job.split)
        self.diagnosis = Diagnosis(Case.of(job))
        self.seconds = 0.0
        """Training time up to the newest record, over all starts of the run."""
        labelled = job.split.labelled
        self._fitted = self.pool.subset(labelled[sample(len(labelled), LABELLED_SAMPLE, job.config.seed, "fitted")])
        test = job.samples.test
        self.test = None if test is None else self._shared(test)
        """The whole test set, of which some classes may not be known."""
        self.held_out: dict[str, Samples] = {}
        """Held-out samples whose class is known, by name ("test", "validation")."""
        for name, part in job.held_out.items():
            self.held_out[name] = self.test if part is test and self.test is not None else self._shared(part)

    def pool_of(self, dataset: Dataset, bank: Bank | None = None) -> Pool | HostPool:
        """The data set where the run keeps its inputs, on the device or on the host."""
        device = self.job.runtime.device
        if bank is not None:
            return BankPool(dataset, bank, device)
        return (HostPool if self.job.on_host else Pool)(dataset, device)

    def _shared(self, dataset: Dataset, pool_of: PoolOf | None = None) -> Samples:
        """A pool of the data set, of which each of several processes holds a part."""
        make = pool_of or (lambda part, own: self.pool_of(part))
        return make(dataset, slice(None)) if self.world.size == 1 else Part(make, dataset, self.world)

    def run(self, progress: Progress = quiet, folder: Path | None = None, stop: threading.Event | None = None) -> None:
        """Train to the last step, with records and checkpoints in the run's ``folder``, or without if it is None.

        Once ``stop`` is set, the present step is the last: its checkpoint is written, and KeyboardInterrupt raised.
        """
        config, step = self.config, self.step
        step.method.train()
        step.progress = progress
        if step.runtime.eager_because:
            progress.note(f"steps run eagerly: {step.runtime.eager_because}")
        with contextlib.ExitStack() as stack:
            stack.callback(step.close)
            recorder = writer = None
            if folder is not None:
                recorder = stack.enter_context(RunRecorder(folder, step.done))
                recorder.warn(self.diagnosis.alarms)
                writer = stack.enter_context(checkpoint.Writer(folder / "checkpoint"))
            for alarm in self.diagnosis.alarms:
                progress.warn(alarm)
            logged, logged_at = step.done, time.perf_counter()
            start = logged_at - self.seconds
            while step.done < config.steps:
                if step.done % config.epoch == 0:
                    self.begin_epoch(step.done // config.epoch)
                step()
                record: Record = {}
                if self._due(config.log_every):
                    step.draw_ahead()
                    record |= step.meter.read()
                    now = time.perf_counter()
                    record["steps_per_second"] = (step.done - logged) / (now - logged_at)
                    logged, logged_at = step.done, now
                if self._due(config.evaluate_every):
                    record |= self.evaluate()
                if record:
                    self.seconds = time.perf_counter() - start
                    if recorder is not None:
                        recorder.write(step.done, Record(seconds=self.seconds) | record)
                    progress(step.done, config.steps, record)
                    self._diagnose(record, recorder, progress)
                stopped = stop is not None and step.done < config.steps and self._stops(stop)
                if stopped or self._due(config.checkpoint_every):
                    if not _finite(step.method):
                        # The loss would show non-finite weights only one step later, and running statistics never.
                        self._diagnose({"loss": None}, recorder, progress)
                    self.world.copy_first(step.state().values())
                    if writer is not None:
                        writer.save(step.done, step.state())
                if stopped:
                    raise KeyboardInterrupt

    def begin_epoch(self, epoch: int) -> None:
        """Call the method's hook; what it draws is a function of the seed and the epoch, as each step's draws are."""
        self.step.runtime.seed(derive(self.config.seed, "epoch", epoch))
        self.step.method.begin_epoch(epoch, self._embed)

    def _stops(self, stop: threading.Event) -> bool:
        """Whether the present step is the last, in all processes. A GPU's host runs ahead, and several wait for each
        other only where each waits for its GPU anyway."""
        asked = self.world.size == 1 or not self.step.runtime.on_gpu or self._due(self.config.log_every)
        return asked and self.world.any(stop.is_set())

    def _due(self, every: int | None) -> bool:
        """Whether something is due after this step: every ``every`` steps (None: once an epoch), and after the last."""
        return self.step.done == self.config.steps or self.step.done % (every or self.config.epoch) == 0

    def evaluate(self) -> Record:
        """Accuracy of the averaged weights on held-out and on labelled samples; it is only reported, selects nothing.

        If logits are not finite, the loss is not either: finite weights may be so large.
        """
        record: Record = {}
        for name, samples in {**self.held_out, "labelled": self._fitted}.items():
            z = self.apply(logits, samples)
            if not z.isfinite().all():
                return {"loss": None}
            record[f"{name}/accuracy"] = (z.argmax(1) == samples.labels).double().mean().item()
        return record

    def apply(
        self, function: Callable[[Model, Splittable], Tensor], samples: Samples, model: Model | None = None
    ) -> Tensor:
        """``function``, such as logits, of a model, the averaged one by default, and all samples; each process has its
        part to do."""
        model = copy.copy(model or self.step.ema.model)
        model.share = None
        if isinstance(samples, Part):
            return samples.of_all(function(model, samples.own.inputs))
        return function(model, samples.inputs)

    def _diagnose(self, record: Record, recorder: RunRecorder | None, progress: Progress) -> None:
        """Report new alarms; non-finite values end the run before a checkpoint stores them."""
        new = self.diagnosis.see(self.step.done, record)
        if new and recorder is not None:
            recorder.warn(self.diagnosis.alarms)
        for alarm in new:
            progress.warn(alarm)
            if alarm.name == NOT_FINITE:
                raise UserError(f"training stopped at step {alarm.step}: {alarm.message}; {alarm.remedy}")

    def _embed(self) -> Embedding:
        labelled, unlabelled = (self.pool.subset(at) for at in (self.job.split.labelled, self.job.split.unlabelled))
        z, z_unlabelled = (self.apply(features, pool) for pool in (labelled, unlabelled))
        return Embedding(z, labelled.labels, z_unlabelled)


def _finite(method: Method) -> bool:
    """Whether all that is trained, and all that is saved of the model, such as running statistics, is finite.

    Not the method's own buffers, which may hold infinity on purpose.
    """
    tensors = dict(method.named_parameters()) | method.model.state_dict(prefix="model.")
    return bool(torch.stack([tensor.isfinite().all() for tensor in tensors.values()]).all())
