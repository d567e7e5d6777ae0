"""Training from a config to a finished run: the loop around the step."""

import contextlib
import datetime
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from normatch.config import Config, to_json
from normatch.data import UNKNOWN, Corpus, Dataset, HostPool, Pool, Reading
from normatch.data.reading import DEFAULT
from normatch.data.split import files_of
from normatch.engine import checkpoint
from normatch.engine.diagnosis import NOT_FINITE, Case, Diagnosis
from normatch.engine.feed import make_pool
from normatch.engine.job import Job, open_corpus, prepare
from normatch.engine.machine import versions
from normatch.engine.predictions import PREDICTIONS, write_predictions
from normatch.engine.progress import Progress, quiet
from normatch.engine.recorder import Record, Recorder, RunRecorder
from normatch.engine.reference import class_mean_accuracy
from normatch.engine.run import Run
from normatch.engine.step import Step
from normatch.errors import UserError
from normatch.files import write_json
from normatch.inference import features, logits
from normatch.methods import Embedding, Method
from normatch.weights import save_model

__all__ = ["MAY_DIFFER", "Loop", "Turns", "run_folder", "train"]

Turns = Callable[[], AbstractContextManager[object]]
"""Makes a context that waits, as it is entered, until a run may train: where several share a GPU."""

MAY_DIFFER = {"device", "precision", "compile", "deterministic", "pool", "data_root", "name"}
"""Fields that say where a run is trained, not what it is: a resumed run may change them."""

LABELLED_SEEN = 256
"""Labelled items, evenly spaced, on which a run is asked whether it fits its labels at all."""


def train(
    config: Config,
    out: Path | str | None = None,
    *,
    resume: bool = False,
    progress: Progress = quiet,
    corpus: Corpus | None = None,
    reading: Reading = DEFAULT,
    turns: Turns | None = None,
) -> Run:
    """Train as ``config`` says, into the folder ``out`` (runs/NAME by default), and return the finished run.

    An existing folder is refused; ``resume`` continues it from its newest checkpoint, on a CPU bit for bit as if it
    had never been stopped. ``corpus`` is the config's data where the caller has read it already, as
    :func:`open_corpus` does; otherwise it is read as ``reading`` says. With ``turns`` it gets ready, then waits for its
    turn; the time that takes is not counted as the run's.
    """
    path = run_folder(config, out)
    found = None
    with contextlib.ExitStack() as held:
        if resume:
            run = Run.open(path)
            _must_match(run, config)
            if run.finished:
                return run
            held.enter_context(run.alone())
            found = checkpoint.load_latest(path / "checkpoint")
            job = prepare(config, corpus or open_corpus(config, reading), pretrained=found is None)
            _must_be_unchanged(run, job)
        else:
            Run.must_be_new(path)
            job = prepare(config, corpus or open_corpus(config, reading))
            run = Run.create(path, config, job.split, files_of(job.split, job.corpus))
            held.enter_context(run.alone())
        with job.runtime.scope():
            loop = Loop(job)
            if found is not None:
                loop.step.load(found[1], found[0])
            run.forget_after(loop.step.done)
            loop.seconds = max((line["seconds"] for line in run.metrics()), default=0.0)
            loop.diagnosis.replay(run.metrics())
            with RunRecorder(path, loop.step.done) as recorder:
                loop.run(recorder, progress, path / "checkpoint", turns)
            _finish(run, loop)
    return run


def run_folder(config: Config, out: Path | str | None) -> Path:
    """Where a run goes unless it is told otherwise: runs/NAME."""
    return Path(out) if out is not None else Path("runs") / config.name


class Loop:
    """Steps, with evaluations, records and checkpoints where they are due."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.config = job.config
        self.pool = self.pool_of(job.corpus.train)
        self.step = Step(job.method, job.config, job.runtime, job.views, self.pool, job.split)
        self.diagnosis = Diagnosis(_case(job))
        self.seconds = 0.0
        labelled = job.split.labelled
        self._fitted = self.pool.subset(labelled[:: -(-len(labelled) // LABELLED_SEEN)])
        self.held_out: dict[str, Pool | HostPool] = {}
        """Items to score on, by name; only those whose class is known."""
        if job.corpus.test is not None and (job.corpus.test.labels != UNKNOWN).any():
            test = self.pool_of(job.corpus.test)
            self.held_out["test"] = test.subset(np.flatnonzero(job.corpus.test.labels != UNKNOWN))
        if len(job.split.validation):
            self.held_out["validation"] = self.pool.subset(job.split.validation)

    def pool_of(self, dataset: Dataset) -> Pool | HostPool:
        """Its items where this run keeps them."""
        return make_pool(dataset, self.job.runtime.device, self.job.on_host)

    def run(self, recorder: Recorder, progress: Progress, checkpoints: Path | None, turns: Turns | None = None) -> None:
        """Train to the last step; checkpoints go into a folder, or nowhere."""
        config, step = self.config, self.step
        self._begin(recorder, progress)
        clock = _Clock(self.seconds, step.done)
        with contextlib.ExitStack() as stack:
            stack.callback(step.feed.close)
            writer = None if checkpoints is None else stack.enter_context(checkpoint.Writer(checkpoints))
            while step.done < config.steps:
                if turns is not None and step.settled:
                    with clock.stopped(), progress.busy("waiting for its turn"):
                        stack.enter_context(turns())
                    turns = None
                if step.done % config.epoch == 0:
                    step.method.begin_epoch(step.done // config.epoch, self._embed)
                step()
                record = self._look(clock)
                if record:
                    self.seconds = clock.seconds
                    recorder.write(step.done, Record(seconds=self.seconds) | record)
                    progress(step.done, config.steps, record)
                    self._diagnose(record, recorder, progress)
                if self._due(config.checkpoint_every):
                    if not _finite(step.method):
                        # The last update spoilt the weights, which the loss will show a step later.
                        self._diagnose({"loss": None}, recorder, progress)
                    if writer is not None:
                        writer.save(step.done, step.state())

    def _begin(self, recorder: Recorder, progress: Progress) -> None:
        """Get ready for the first step, and say what is known before it."""
        self.step.method.train()
        self.step.progress = progress
        if self.step.runtime.eager_because:
            progress.note(f"steps run eagerly: {self.step.runtime.eager_because}")
        recorder.warn(self.diagnosis.alarms)
        for alarm in self.diagnosis.alarms:
            progress.warn(alarm)

    def _due(self, every: int | None) -> bool:
        """Whether something is to be done after this step: ``every`` so many, or once an epoch; and after the last."""
        return self.step.done == self.config.steps or self.step.done % (every or self.config.epoch) == 0

    def _look(self, clock: "_Clock") -> Record:
        """What there is to report after this step: nothing after most."""
        record: Record = {}
        if self._due(self.config.log_every):
            record |= self.step.meter.read()
            record["steps_per_second"] = clock.speed(self.step.done)
        if self._due(self.config.evaluate_every):
            record |= self.evaluate() | {"labelled/accuracy": self._accuracy(self._fitted)}
        return record

    def evaluate(self) -> dict[str, float]:
        """Accuracy of the averaged weights on what was held out; it is reported and chooses nothing."""
        return {f"{name}/accuracy": self._accuracy(items) for name, items in self.held_out.items()}

    def _accuracy(self, items: Pool | HostPool) -> float:
        correct = logits(self.step.average.model, items.inputs).argmax(1) == items.labels
        return correct.double().mean().item()

    def _diagnose(self, record: Record, recorder: Recorder, progress: Progress) -> None:
        """Report what a record shows to be wrong; what is not finite ends the run before a checkpoint keeps it."""
        new = self.diagnosis.see(self.step.done, record)
        if new:
            recorder.warn(self.diagnosis.alarms)
        for alarm in new:
            progress.warn(alarm)
            if alarm.name == NOT_FINITE:
                raise UserError(f"training stopped at step {alarm.step}: {alarm.message}; {alarm.remedy}")

    def _embed(self) -> Embedding:
        labelled, unlabelled = (self.pool.subset(at) for at in (self.job.split.labelled, self.job.split.unlabelled))
        z, z_unlabelled = (features(self.step.average.model, pool.inputs) for pool in (labelled, unlabelled))
        return Embedding(z, labelled.labels, z_unlabelled)


class _Clock:
    """The time of a run, over all its starts, and the speed of its steps."""

    def __init__(self, seconds: float, done: int) -> None:
        now = time.perf_counter()
        self._start, self._asked, self._done = now - seconds, now, done

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._start

    def speed(self, done: int) -> float:
        """Steps a second since it was last asked."""
        now = time.perf_counter()
        speed = (done - self._done) / (now - self._asked)
        self._asked, self._done = now, done
        return speed

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Within it no time passes."""
        before = time.perf_counter()
        yield
        waited = time.perf_counter() - before
        self._start, self._asked = self._start + waited, self._asked + waited


def _case(job: Job) -> Case:
    train, split, config = job.corpus.train, job.split, job.config
    counts = np.bincount(train.labels[split.labelled], minlength=len(train.classes))
    validating = len(split.validation)
    return Case(
        classes=train.classes,
        labels=tuple(counts.tolist()),
        steps=config.steps,
        epoch=config.epoch,
        validation=validating,
        reference=class_mean_accuracy(train, split.labelled, split.validation) if validating else None,
    )


def _finite(method: Method) -> bool:
    return bool(torch.stack([p.isfinite().all() for p in method.parameters()]).all())


def _must_match(run: Run, config: Config) -> None:
    stored, given = to_json(run.config), to_json(config)
    for name in stored:
        if name not in MAY_DIFFER and stored[name] != given[name]:
            raise UserError(
                f"{run.path} was started with {name} {stored[name]}, not {given[name]}: "
                "resume it without that change, or start another run with another --out"
            )


def _must_be_unchanged(run: Run, job: Job) -> None:
    """The same items in the same places; of files, also the same names, since numbers may agree by chance."""
    if run.split.to_json() != job.split.to_json() or run.files not in ({}, files_of(job.split, job.corpus)):
        raise UserError(
            f"the data has changed since {run.path} was started: its labelled, unlabelled or test items are others "
            "now; restore it, or start another run with another --out"
        )


def _finish(run: Run, loop: Loop) -> None:
    """The files of a finished run; ``result.json`` comes last and says that it is one."""
    save_model(loop.step.average.model, run.path)
    test = loop.job.corpus.test
    if test is not None:
        p = logits(loop.step.average.model, loop.pool_of(test).inputs).softmax(1).cpu()
        write_predictions(run.path / PREDICTIONS, test, p)
    scores = loop.evaluate()
    on = next(iter(loop.held_out), None)
    result: dict[str, Any] = {
        "accuracy": scores[f"{on}/accuracy"] if on else None,
        "evaluated_on": on,
        "n": len(loop.held_out[on]) if on else 0,
        "method": loop.config.method,
        "seed": loop.config.seed,
        "labels": len(loop.job.split.labelled),
        "skipped": list(loop.job.corpus.skipped),
        "steps": loop.step.done,
        "seconds": loop.seconds,
        "hardware": loop.step.runtime.describe(),
        "versions": versions(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    write_json(run.path / "result.json", result)
