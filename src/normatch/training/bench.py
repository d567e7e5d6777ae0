"""Measure how fast a config trains on this machine: where the time of a step goes, and what fits into some minutes."""

import contextlib
import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from normatch.config import Config
from normatch.data import Corpus, Dataset, sources
from normatch.device import circumstances, device_of
from normatch.errors import UserError
from normatch.nets import create_backbone
from normatch.text import counted
from normatch.training.bank import batch_to_embed
from normatch.training.job import Job, prepare
from normatch.training.loop import Loop
from normatch.training.progress import Progress, quiet
from normatch.training.runtime import Runtime, capture
from normatch.training.step import Step
from normatch.training.torchrun import world

__all__ = ["SPARE", "Pace", "bench", "describe", "embedding_pace", "pace"]

WARM_UP = 12
"""Untimed steps at the start, in which the step is compiled and captured and kernels are chosen."""

SPARE = 0.05
"""Share of a time budget reserved for checkpoints and the end of a run."""


def bench(
    config: Config,
    *,
    repeats: int = 5,
    seconds: float = 2.0,
    images: int | None = None,
    corpus: Corpus | None = None,
    progress: Progress = quiet,
) -> dict[str, Any]:
    """Steps per second (the median of ``repeats`` timings of about ``seconds``) and milliseconds of a step's parts.

    A named data set is replaced by noise of its shape, so that nothing needs to be downloaded: a step's time does not
    depend on the pixels. ``images`` is their number, by default a few times what a step draws. ``corpus`` is the data
    if already read. Parts are timed separately, so their sum may differ from the step's time.
    """
    if not 0 < seconds <= 3600:
        raise UserError(f"seconds is {seconds}: give a number above 0, at most 3600")
    for name, n in (("repeats", repeats), ("images", images)):
        if n is not None and n < 1:
            raise UserError(f"{name} is {n}: give 1 or more")
    if images is not None and config.data not in sources:
        raise UserError(f"images is {images}, but {config.data} is timed with its own images: leave it out")
    start = time.perf_counter()
    if corpus is None and config.data in sources:
        corpus = _noise(config, images)
        # Who is labelled or held out takes no time in a step.
        fewest = {"labels": len(corpus.train.classes), "labelled": (), "fold": None, "unlabelled": None}
        config = config.replace(test_share=0.0, validation=0.0, **fewest)
    if device_of(config.device).type == "cuda":
        # What an earlier bench in this process left; first, because free memory decides where the images are kept.
        torch._dynamo.reset()
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    job = prepare(config, corpus)
    with _stepping(job) as loop:
        step = loop.step
        step.progress = progress
        _seconds_of(step, WARM_UP, step.runtime)
        ready = time.perf_counter() - start
        once = _seconds_of(step, 3, step.runtime)
        count = max(5, round(seconds / once))
        rates = [1 / _seconds_of(step, count, step.runtime) for _ in range(repeats)]
        peak = torch.cuda.max_memory_allocated() if job.runtime.on_gpu else None
        rate = statistics.median(rates)
        parts, eager = _parts(step)
        return {
            "name": config.name,
            "method": config.method,
            # Of a frozen backbone, which is no part of the steps, they are those of the whole model.
            "backbone": (job.frozen or job.method.model).spec.backbone,
            "shape": (job.frozen or job.method.model).spec.shape,
            "images": len(job.corpus.train),
            "steps_per_second": rate,
            "repeats": rates,
            "steps_each": count,
            "parts_ms": parts,
            "parts_not_captured": eager,
            "peak_memory_bytes": peak,
            "start_seconds": ready,
            "hardware": step.runtime.describe(),
            "eager_because": step.runtime.eager_because,
            **circumstances(),
        }


def describe(report: dict[str, Any]) -> str:
    """The timings as text."""
    rates, step_ms = report["repeats"], 1000 / report["steps_per_second"]
    spread = f"{min(rates):.1f} to {max(rates):.1f} in {counted(len(rates), 'repeat')}"
    lines = [
        f"{report['method']} on {report['backbone']}: {report['steps_per_second']:.1f} steps/s ({spread})",
        f"  {report['hardware']}, torch {report['versions']['torch']}; ready after {report['start_seconds']:.0f} s",
    ]
    if report["eager_because"]:
        lines.append(f"  not captured: {report['eager_because']}")
    if report["peak_memory_bytes"] is not None:
        lines.append(f"  peak GPU memory {report['peak_memory_bytes'] / 1e9:.2f} GB")
    for name, ms in report["parts_ms"].items():
        mark = "  (not captured)" if name in report["parts_not_captured"] else ""
        lines.append(f"  {name:<22}{ms:8.2f} ms  {ms / step_ms:6.1%}{mark}")
    return "\n".join(lines)


def _noise(config: Config, images: int | None) -> Corpus:
    """Random images with the shape and classes of a named data set."""
    source = sources.get(config.data)
    channels, height, width = source.shape
    if config.image_size is not None:
        height = width = config.image_size
    n = images or 4 * max(config.batch * config.ratio, source.classes)
    noise = np.random.default_rng(0).integers(0, 256, (n, height, width, channels), dtype=np.uint8)
    classes = tuple(map(str, range(source.classes)))
    return Corpus("noise", Dataset(noise, np.arange(n) % source.classes, classes))


@contextlib.contextmanager
def _stepping(job: Job) -> Iterator[Loop]:
    """A loop whose steps are called one by one, within the torch settings of the job's runtime."""
    with job.runtime.scope():
        loop = Loop(job)
        loop.step.method.train()
        loop.begin_epoch(0)
        try:
            yield loop
        finally:
            loop.step.close()


def _seconds_of(action: Callable[[], object], count: int, runtime: Runtime) -> float:
    """Seconds of one of ``count`` calls, until the device has done all that they gave it."""
    wait: Callable[[], object] = torch.cuda.synchronize if runtime.on_gpu else lambda: None
    wait()
    start = time.perf_counter()
    for _ in range(count):
        action()
    wait()
    return runtime.world.largest((time.perf_counter() - start) / count)


def _parts(step: Step) -> tuple[dict[str, float], list[str]]:
    """Milliseconds of each part of a step, timed separately, and the names of parts that could not be captured."""
    batch, truth = step.sample()

    def forward_and_backward() -> None:
        step.optimisers.zero()
        step.learn(batch, truth)[0].backward()

    # The order matters: optimisers need the gradients that the backward pass leaves.
    parts: dict[str, Callable[[], object]] = {
        "augmentation": step.sample,
        "forward": lambda: step.learn(batch, truth),
        "backward": forward_and_backward,
        "optimisers": lambda: step.optimisers.step(batch.step),
        "average of weights": lambda: step.ema.update(batch.step),
    }
    timed = {name: _time_part(part, step.runtime) for name, part in parts.items()}
    times = {name: 1000 * seconds for name, (seconds, _) in timed.items()}
    times["backward"] -= times["forward"]
    return times, [name for name, (_, captured) in timed.items() if step.runtime.capture and not captured]


def _time_part(part: Callable[[], object], runtime: Runtime) -> tuple[float, bool]:
    """Seconds of one part, and whether it was captured as its own graph, which is tried where steps are captured."""
    for _ in range(3):
        part()
    graph = None
    if runtime.capture:
        with contextlib.suppress(RuntimeError):
            graph = capture(part)
    return _seconds_of(graph.replay if graph else part, 20, runtime), graph is not None


@dataclass(frozen=True)
class Pace:
    """Seconds that a run takes to start (up to its first step), per step, and per evaluation, in which the beginning of
    an epoch is included: by default each epoch has one."""

    start: float
    step: float
    evaluation: float

    def seconds_in(self, minutes: float) -> float:
        """Seconds that a run of ``minutes`` has for steps and evaluations; negative if it is too short to start."""
        return 60 * minutes * (1 - SPARE) - self.start

    def steps_in(self, minutes: float, *, evaluations: int = 0, every: float = math.inf) -> int:
        """Steps of a run of ``minutes`` with ``evaluations`` in total, or with one ``every`` that many steps.

        Below 1 if it is too short.

        >>> measured = Pace(start=7.0, step=0.5, evaluation=5.0)
        >>> measured.steps_in(1, evaluations=2), measured.steps_in(1, every=10)
        (80, 50)
        """
        seconds = self.seconds_in(minutes) - evaluations * self.evaluation
        return int(seconds / (self.step + self.evaluation / every))


@torch.no_grad()
def embedding_pace(backbone: str, shape: tuple[int, ...], device: torch.device) -> float:
    """Images of this shape that a backbone embeds in a second, from a few batches."""
    batch = batch_to_embed(shape, device)
    with torch.random.fork_rng([]):
        embedder = create_backbone(backbone, shape).eval().to(device)
    images = torch.zeros(batch, *shape, device=device).contiguous(memory_format=torch.channels_last)

    def timed() -> float:
        start = time.perf_counter()
        float(embedder(images).sum())  # waits for a GPU
        return time.perf_counter() - start

    timed()
    return batch / world().largest(min(timed() for _ in range(3)))


def pace(job: Job, seconds: float = 3.0) -> Pace:
    """Measure how fast a job trains, by steps for about ``seconds`` and one evaluation. The job is used up."""
    try:
        return _measured(job, seconds)
    finally:
        gc.collect()  # a step is part of a reference cycle; its images would occupy the device during the actual run


def _measured(job: Job, seconds: float) -> Pace:
    begin = time.perf_counter()
    with _stepping(job) as loop:
        _seconds_of(loop.step, 1 + (WARM_UP if job.runtime.capture else 1), job.runtime)
        start = time.perf_counter() - begin
        step = _typical(lambda count: _seconds_of(loop.step, count, job.runtime), seconds)

        def evaluate() -> None:
            loop.evaluate()
            loop.begin_epoch(1)

        return Pace(start, step, _seconds_of(evaluate, 1, job.runtime))


def _typical(time_of: Callable[[int], float], seconds: float) -> float:
    """The seconds of a step, from about ``seconds`` of steps; ``time_of`` times that many and gives the time of one.

    The median of three series counts or, where one step takes so long, the fastest of three: other programs can only
    slow it down.
    """
    once = min(time_of(1) for _ in range(3))
    steps = round(seconds / once / 3)
    return statistics.median(time_of(steps) for _ in range(3)) if steps else once
