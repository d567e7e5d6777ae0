"""How fast a config trains on this machine, and where the time of a step goes."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from normatch.config import Config
from normatch.data import Corpus, Dataset, sources
from normatch.engine.job import Job, open_corpus, prepare
from normatch.engine.runtime import Runtime
from normatch.engine.step import Step
from normatch.engine.train import Loop
from normatch.errors import UserError

__all__ = ["AUXILIARY", "Pace", "bench", "describe", "pace"]

AUXILIARY = "of both: auxiliary"
"""The auxiliary classifiers' share of forward and backward."""

WARM_UP = 12
"""Steps before the clock starts: compilation, capture, the choice of kernels."""


def bench(config: Config, *, repeats: int = 5, seconds: float = 2.0) -> dict[str, Any]:
    """Steps a second (the median of ``repeats`` timings of about ``seconds``) and the milliseconds of a step's parts.

    A named data set is replaced by noise of its shape, so that nothing needs to be downloaded: a step's time does not
    depend on the pixels. Parts are timed alone, so their sum may differ from the step's time.
    """
    if repeats < 1 or seconds <= 0:
        raise UserError(f"repeats is {repeats}, seconds {seconds}: give at least 1 and a positive time")
    start = time.perf_counter()
    job = prepare(config, _noise(config) if config.data in sources else open_corpus(config))
    with job.runtime.scope():
        step = Loop(job).step
        step.method.train()
        for _ in range(WARM_UP):
            step()
        _wait(job.runtime)
        ready = time.perf_counter() - start
        once = _seconds(step, 3, job.runtime)
        count = max(5, round(seconds / once))
        rates = [1 / _seconds(step, count, job.runtime) for _ in range(repeats)]
        return {
            "method": config.method,
            "backbone": job.method.model.spec.backbone,
            "steps_per_second": statistics.median(rates),
            "repeats": rates,
            "parts_ms": _parts(job, step),
            "peak_memory_bytes": torch.cuda.max_memory_allocated() if job.runtime.device.type == "cuda" else None,
            "start_seconds": ready,
            "hardware": job.runtime.describe(),
            "torch": str(torch.__version__),
        }


@dataclass(frozen=True)
class Pace:
    """Seconds until the first step is done, of a step, and of an evaluation."""

    start: float
    step: float
    evaluation: float


def pace(job: Job, seconds: float = 3.0) -> Pace:
    """How fast a job would train, from steps of about ``seconds`` and one evaluation. The job is used up by it."""
    with job.runtime.scope():
        begin = time.perf_counter()
        loop = Loop(job)
        loop.step.method.train()
        loop.step()
        for _ in range(WARM_UP if job.runtime.capture else 1):
            loop.step()
        _wait(job.runtime)
        start = time.perf_counter() - begin
        once = _seconds(loop.step, 1, job.runtime)
        step = _seconds(loop.step, round(seconds / once), job.runtime) if once < seconds / 2 else once
        return Pace(start, step, _seconds(loop.evaluate, 1, job.runtime))


def describe(report: dict[str, Any]) -> str:
    """The timings as text."""
    rates, step_ms = report["repeats"], 1000 / report["steps_per_second"]
    spread = f"{min(rates):.1f} to {max(rates):.1f} in {len(rates)} repeats"
    lines = [
        f"{report['method']} on {report['backbone']}: {report['steps_per_second']:.1f} steps/s ({spread})",
        f"  {report['hardware']}, torch {report['torch']}; ready after {report['start_seconds']:.0f} s",
    ]
    if report["peak_memory_bytes"] is not None:
        lines.append(f"  peak GPU memory {report['peak_memory_bytes'] / 1e9:.2f} GB")
    lines += [f"  {name:<22}{ms:8.2f} ms  {ms / step_ms:6.1%}" for name, ms in report["parts_ms"].items()]
    return "\n".join(lines)


def _noise(config: Config) -> Corpus:
    """Random images of a named data set's shape and classes, a few times what a step draws."""
    source = sources.get(config.data)
    channels, side, width = source.shape
    if config.image_size is not None:
        side = width = config.image_size
    n = max(4 * config.batch * config.ratio, 2 * (config.labels or 1), 4 * source.classes)
    images = np.random.default_rng(0).integers(0, 256, (n, side, width, channels), dtype=np.uint8)
    labels = np.arange(n) % source.classes
    folds = (np.arange(config.batch * source.classes) % n,) * (1 + (config.fold or 0))
    return Corpus("noise", Dataset(images, labels, tuple(map(str, range(source.classes)))), folds=folds)


def _parts(job: Job, step: Step) -> dict[str, float]:
    """Milliseconds of each part of a step, alone."""
    batch, _ = step.sample()

    def forward() -> None:
        step.learn(batch)

    def both() -> None:
        step.optimisers.zero()
        step.learn(batch)[1].backward()

    model = job.method.model
    n = sum(len(views) for views in (*batch.labelled[:1], *batch.unlabelled[:1]))
    z = torch.randn(n, model.backbone.features, device=job.runtime.device)

    def auxiliary() -> None:
        for classifier in model.auxiliary:
            classifier(z).sum().backward()

    parts: dict[str, Callable[[], object]] = {
        "augmentation": step.sample,
        "forward": forward,
        "backward": both,
        "optimisers": lambda: step.optimisers.step(batch.step),
        "average of weights": lambda: step.average.update(batch.step),
        AUXILIARY: auxiliary,
    }
    if not len(model.auxiliary):
        del parts[AUXILIARY]
    times = {name: 1000 * _alone(part, job.runtime) for name, part in parts.items()}
    times["backward"] -= times["forward"]
    return times


def _alone(part: Callable[[], object], runtime: Runtime, count: int = 20) -> float:
    """Seconds of one part, captured as a graph of its own where steps are."""
    for _ in range(3):
        part()
    if runtime.capture:
        _wait(runtime)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            part()
        return _seconds(graph.replay, count, runtime)
    return _seconds(part, count, runtime)


def _seconds(action: Callable[[], object], count: int, runtime: Runtime) -> float:
    _wait(runtime)
    start = time.perf_counter()
    for _ in range(count):
        action()
    _wait(runtime)
    return (time.perf_counter() - start) / count


def _wait(runtime: Runtime) -> None:
    if runtime.device.type == "cuda":
        torch.cuda.synchronize()
