"""Train from a config to a finished run, in a new folder or resuming one."""

import os
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from normatch.config import Config, flat, must_be_config, to_json
from normatch.data import UNKNOWN, Corpus, Reading, Split, sources
from normatch.data.images import DEFAULT
from normatch.data.split import label_counts
from normatch.device import stamp
from normatch.errors import UserError, reason, resume_command
from normatch.files import PARTS, write_json
from normatch.metrics import averages, trusted_temperature
from normatch.nets.model import Model, logits, save_model
from normatch.training import checkpoint
from normatch.training.baselines import BASELINE, Score, compare, score_start
from normatch.training.distributed import World
from normatch.training.job import Job, open_corpus, prepare, untrained_start
from normatch.training.loop import Loop
from normatch.training.predictions import PREDICTIONS, write_predictions
from normatch.training.progress import Progress, quiet
from normatch.training.run import SCORES, START, Run, write_warnings
from normatch.training.torchrun import joined, mark, on_loss, restarted, world

__all__ = ["REPETITION", "as_begun", "must_match", "run_folder", "train"]

MAY_DIFFER = {"device", "precision", "compile", "threads", "deterministic", "pool", "data_root", "name"}
"""Config fields that a resumed run may change: they determine where and how a run is computed, not what it is."""

REPETITION = MAY_DIFFER | {"seed", "fold", "log_every", "evaluate_every", "checkpoint_every"}
"""Config fields in which repetitions of one experiment may differ: also the labels drawn, and how often a run logs."""

PLACES = {"data", "unlabelled", "weights", "start"}
"""Config fields that a run may change until it is finished: the data, which must be the same, may have moved."""


def train(
    config: Config,
    out: Path | str | None = None,
    *,
    first: Config | None = None,
    resume: bool = False,
    progress: Progress = quiet,
    corpus: Corpus | None = None,
    reading: Reading = DEFAULT,
) -> Run:
    """Train as ``config`` says, into the folder ``out`` (runs/NAME by default), and return the finished run.

    An existing folder is refused; ``resume`` continues it from its newest checkpoint, on a CPU bit for bit as if it
    had never been stopped. The user's own data may have moved meanwhile: ``config`` then names its new place.
    ``first`` is the config of a run that is trained before, in the folder ``start`` inside, and that this one starts
    from; if they are resumed, it is known.
    ``corpus`` is the config's data if already read, as by :func:`open_corpus`, and may serve runs of several seeds;
    otherwise it is read with the options ``reading``.

    SIGTERM and Ctrl-C let the present step end, write its checkpoint and raise KeyboardInterrupt, whose message is the
    command that continues.
    """
    must_be_config(config)
    with joined(config.device) as processes:
        shown = progress if processes.first else quiet
        return _trained(config, first, run_folder(config, out), resume, shown, corpus, reading, processes)


def _trained(
    config: Config,
    first: Config | None,
    path: Path,
    resume: bool,
    progress: Progress,
    corpus: Corpus | None,
    reading: Reading,
    processes: World,
) -> Run:
    if not resume and not processes.led(lambda: restarted(path)):
        processes.led(lambda: Run.must_be_new(path))
        corpus = corpus or open_corpus(config, reading)
        job = prepare(first or config, corpus, reading=reading, progress=progress)
        if first is not None:  # what is wrong with the second is said before the first is trained
            config = config.replace(start=path / START)
            like = untrained_start(config.replace(backbone=job.backbone), job.corpus.train)
            prepare(config, corpus, start=like, reading=reading)
        # Not earlier: a message about data that is not found quotes it as it was given.
        made = {"backbone": job.backbone, "threads": job.runtime.threads}
        stored, *before = (_with_absolute_paths(c.replace(**made)) for c in (config, first) if c is not None)
        split, read = job.split, job.corpus
        run = processes.led(lambda: _created(path, stored, split, read, *before))
        if not processes.first:
            must_match(run, stored)
            run.must_be_its_data(read)
        with _alone(run, processes):
            _train(run.first or run, job, None, progress, run, new=True)
            if first is not None:
                del job  # its images and features
                _resume(run, stored, corpus, reading, progress, run)
        return run
    run = Run.open(path)
    config = as_begun(run, config)
    must_match(run, config)
    if not run.finished:
        with _alone(run, processes):
            corpus = corpus or open_corpus(config, reading)
            if run.first is not None:
                config = config.replace(start=run.first.path.absolute())  # the folder may have moved
                here = {name: getattr(config, name) for name in MAY_DIFFER | PLACES - {"name", "weights", "start"}}
                _resume(run.first, run.first.config.replace(**here), corpus, reading, progress, run)
            _resume(run, config, corpus, reading, progress, run)
    return run


def _created(path: Path, config: Config, split: Split, corpus: Corpus, *before: Config) -> Run:
    run = Run.create(path, config, split, corpus, *before)
    mark(path)
    return run


@contextmanager
def _alone(run: Run, processes: World) -> Iterator[None]:
    """Hold the lock of the run, in the first process for all."""
    with ExitStack() as held:
        processes.led(lambda: held.enter_context(run.alone()))
        on_loss(f"continue with {resume_command(run.path)}")
        yield


def _resume(run: Run, config: Config, corpus: Corpus, reading: Reading, progress: Progress, whole: Run) -> None:
    """Train a run from its newest checkpoint to its end, if that is still to be done."""
    if run.finished:
        return
    for part in run.path.glob(PARTS) if world().first else ():
        part.unlink()
    saved = checkpoint.load_latest(run.path / "checkpoint")
    job = prepare(config, corpus, begun=run, pretrained=saved is None, reading=reading, progress=progress)
    _train(run, job, saved, progress, whole)


def run_folder(config: Config, out: Path | str | None) -> Path:
    """The folder of a run: ``out``, or runs/NAME if that is None."""
    return Path(out) if out is not None else Path("runs") / config.name


def _with_absolute_paths(config: Config) -> Config:
    """The config with absolute paths, so that a stored config is valid from any working directory."""

    def absolute(path: Path | str) -> Path:
        return Path(os.path.abspath(Path(path).expanduser()))

    family, colon, file = config.backbone.partition(":")
    return config.replace(
        backbone=f"{family}:{absolute(file)}" if family == "onnx" and colon else config.backbone,
        data=config.data if config.data in sources else str(absolute(config.data)),
        labelled=tuple(map(absolute, config.labelled)),
        unlabelled=config.unlabelled and absolute(config.unlabelled),
        data_root=config.data_root and absolute(config.data_root),
        weights=config.weights and absolute(config.weights),
        start=config.start and absolute(config.start),
    )


def _train(
    run: Run,
    job: Job,
    saved: tuple[int, dict[str, Tensor]] | None,
    progress: Progress,
    whole: Run,
    *,
    new: bool = False,
) -> None:
    """Train from the beginning, or from the ``saved`` step and state, and write the files of the finished run, which is
    a part of the ``whole`` one or that itself.

    The folder of a ``new`` run that fails before its first step is done is removed: it holds nothing, and would refuse
    the next attempt.
    """
    loop = None
    # Signals first: the scope imports for a second or two.
    with _stopped_by_signals(whole) as stop, ExitStack() as scope:
        try:
            scope.enter_context(job.runtime.scope())
            loop = Loop(job)
            if saved is not None:
                done, state = saved
                job.must_continue(state)
                loop.step.load(state, done)
            done = loop.step.done
            records = loop.world.led(lambda: run.metrics_until(done))
            loop.seconds = max((record["seconds"] for record in records), default=0.0)
            for record in records:
                loop.diagnosis.see(record["step"], record)
            loop.run(progress, run.path if loop.world.first else None, stop)
        except Exception as error:
            if new and (loop is None or not loop.step.done):
                on_loss("start it again")
                if world().first:
                    shutil.rmtree(whole.path, ignore_errors=True)
            if (remedy := _remedy(error, job.config)) is not None:
                raise UserError(remedy) from error
            raise
        stop.at_once = True
        _finish(run, loop, progress)


class _Stop(threading.Event):
    """Set to stop a run after its present step."""

    at_once = False
    """Whether no step is left: all is saved but what follows from it."""


@contextmanager
def _stopped_by_signals(run: Run) -> Iterator[_Stop]:
    """An event that SIGTERM and Ctrl-C set while the block runs, so that the run stops after its step and is saved.

    A second Ctrl-C stops at once. Only the main thread gets signals; handlers that somebody else has installed stay.
    """
    stop = _Stop()

    def handle(number: int, frame: object) -> None:
        if stop.at_once or (stop.is_set() and number == signal.SIGINT):
            raise KeyboardInterrupt
        stop.set()

    before: dict[int, Any] = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
    ours = threading.current_thread() is threading.main_thread()
    numbers = [number for number, handler in before.items() if ours and signal.getsignal(number) == handler]
    for number in numbers:
        signal.signal(number, handle)
    try:
        yield stop
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"continue with {resume_command(run.path)}") from None
    finally:
        for number in numbers:
            signal.signal(number, before[number])


def _remedy(error: Exception, config: Config) -> str | None:
    """What to say if the batch is too large for the memory, or too small for batch norm.

    torch has a type for the first on a GPU only, and none for the second.
    """
    sizes = f"batch is {config.batch} and ratio {config.ratio}"
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "can't allocate memory" in str(error):
        return f"{sizes}, too many for the memory: lower --batch, --ratio or --image-size"
    if "more than 1 value per channel" in str(error):
        return f"{sizes}, too few for batch norm ({error}): give more"
    return None


def as_begun(run: Run, config: Config) -> Config:
    """The config with what was picked when the run began: on another kind of device, others would be."""
    begun = run.config
    return config.replace(
        backbone=begun.backbone if config.backbone == "auto" else config.backbone,
        threads=begun.threads if config.threads is None else config.threads,
    )


def must_match(run: Run, config: Config) -> None:
    """Raise UserError if a run was started with another config, but for what a resumed run may change."""
    stored, given = flat(to_json(run.config)), flat(to_json(_with_absolute_paths(config)))
    may_differ = MAY_DIFFER if run.finished else MAY_DIFFER | PLACES
    for name in stored:
        if name not in may_differ and stored[name] != given[name]:
            raise UserError(
                f"{run.path} was started with {name} {stored[name]}, not {given[name]}: "
                "resume it without that change, or start another run with another --out"
            )


def _finish(run: Run, loop: Loop, progress: Progress) -> None:
    """Write the files of a finished run; ``result.json`` comes last, as the mark that it is finished."""
    model, kept = _kept(loop)
    found = {name: loop.apply(logits, samples, model) for name, samples in loop.held_out.items() if name != "test"}
    of_test = None if loop.test is None else loop.apply(logits, loop.test, model)
    loop.world.led(lambda: _write(run, loop, model, kept, found, of_test, progress))


def _write(
    run: Run,
    loop: Loop,
    model: Model,
    kept: dict[str, str] | None,
    found: dict[str, Tensor],
    of_test: Tensor | None,
    progress: Progress,
) -> None:
    """``found`` has the logits of the held-out samples but those of the test set, ``of_test`` (N, K)."""
    corpus, labelled = loop.job.corpus, loop.job.split.labelled
    on = next(iter(loop.held_out), None)
    temperature = None
    if (validation := loop.held_out.get("validation")) is not None:
        # Never fitted on the test set.
        temperature = trusted_temperature(found["validation"].cpu().numpy(), validation.labels.cpu().numpy())
    save_model(loop.job.whole(model), run.path, temperature)
    if of_test is not None and loop.test is not None and corpus.test is not None:
        found["test"] = of_test[loop.test.labels != UNKNOWN]
        write_predictions(run.path / PREDICTIONS, corpus.test, of_test.softmax(1).cpu())
    scores: dict[str, float | None] = dict.fromkeys(SCORES)
    if on is not None:
        scores |= averages(loop.held_out[on].labels.cpu().numpy(), found[on].argmax(1).cpu().numpy())
    result: dict[str, Any] = {
        **scores,
        "evaluated_on": on,
        "n": len(loop.held_out[on]) if on else 0,
        "method": loop.config.method,
        "seed": loop.config.seed,
        "labels": len(labelled),
        "labels_by_class": label_counts(corpus.train, labelled),
        # Of all training samples, also those whose labels the run did not use: Run.how_to_test needs them.
        "label_counts": label_counts(corpus.train),
        "skipped": list(corpus.skipped),
        **({} if kept is None else {"start": kept}),
        "baselines": _baselines(run, loop, model, on, found.get(on or ""), progress),
        "steps": loop.step.done,
        "seconds": loop.seconds,
        "embedding_seconds": loop.job.embedding_seconds,
        "hardware": loop.step.runtime.describe(),
        "processes": loop.world.size,
        **stamp(),
    }
    write_json(run.path / "result.json", result)


def _kept(loop: Loop) -> tuple[Model, dict[str, str] | None]:
    """The averaged model or, if more of the validation samples are right by it, the one that the run started from; and
    for a run that started from one, which of them and why."""
    end, start, held = loop.step.ema.model, loop.job.start, loop.held_out.get("validation")
    if start is None:
        return end, None
    if held is None:
        return end, {"kept": "end", "why": "there are no validation samples to choose by (--validation 0.2)"}
    right = [int((loop.apply(logits, held, model).argmax(1) == held.labels).sum()) for model in (start, end)]
    why = f"of {len(held)} validation samples the end has {right[1]} right, the start {right[0]}"
    return (start, {"kept": "start", "why": why}) if right[0] > right[1] else (end, {"kept": "end", "why": why})


def _baselines(
    run: Run, loop: Loop, model: Model, on: str | None, z: Tensor | None, progress: Progress
) -> list[dict[str, Any]]:
    """The start of a run, if the ``model`` is another, and baselines of a run on the user's own data; and the warning
    if one is better than its logits ``z``.

    The model is saved by now; whatever happens here, the run is finished.
    """
    scores: list[Score] = []
    predicted = z.argmax(1).cpu().numpy() if z is not None else np.empty(0, np.int64)
    if loop.job.start is not None and model is not loop.job.start and on is not None:
        scores.append(score_start(loop, loop.job.start, on, predicted))
    if loop.config.data not in sources:
        try:
            with progress.busy("baselines"):
                found, baseline = compare(loop, on, predicted)
                save_model(baseline, run.path, name=BASELINE)
                scores += found
        except Exception as error:
            progress.note(f"no baselines: {reason(error)}")
    if new := loop.diagnosis.end(loop.step.done, scores):
        write_warnings(run.path, loop.diagnosis.alarms)
    for alarm in new:
        progress.warn(alarm)
    return [asdict(score) for score in scores]
