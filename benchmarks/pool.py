"""Steps a second on a GPU with images on the device and in host memory, and with few and many images.

python benchmarks/pool.py prints JSON: ResNet-18 on 20,000 images of 96×96 with either pool, and WRN-28-2 on 50,000 and
on 1,000,000 images of 32×32. All pixels are noise; a step draws 64 + 448 images, compiled and captured.
"""

import json
import statistics
import time
from typing import Any, Literal

import numpy as np
import torch

from normatch.config import Config
from normatch.data import Corpus, Dataset
from normatch.engine import Loop, prepare
from normatch.engine.machine import circumstances
from normatch.methods.normatch import NorMatchSettings

WARM_UP = 20
"""Steps before the clock starts: compilation, capture, a full ring."""
REPEATS = 5
SECONDS = 2.0


def noise(n: int, side: int) -> Corpus:
    images = np.random.default_rng(0).integers(0, 256, (n, side, side, 3), dtype=np.uint8)
    return Corpus("noise", Dataset(images, np.arange(n) % 10, tuple(map(str, range(10)))))


def measure(config: Config, corpus: Corpus) -> dict[str, Any]:
    """The median rate of steps, and what it was measured on."""
    torch._dynamo.reset()
    job = prepare(config, corpus)
    with job.runtime.scope():
        step = Loop(job).step
        step.method.train()
        try:
            for _ in range(WARM_UP):
                step()
            count = max(5, round(SECONDS * rate(step, 10)))
            rates = [rate(step, count) for _ in range(REPEATS)]
        finally:
            step.feed.close()
    return {
        "backbone": config.backbone,
        "images": len(corpus.train),
        "side": corpus.train.shape[1],
        "pool": "host" if job.on_host else "device",
        "steps_per_second": statistics.median(rates),
        "repeats": rates,
        "hardware": job.runtime.describe(),
    }


def rate(step: Any, count: int) -> float:
    """Steps a second over ``count`` of them, until the device has done the last."""
    wait()
    start = time.perf_counter()
    for _ in range(count):
        step()
    wait()
    return count / (time.perf_counter() - start)


def wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def compare(backbone: str, side: int, cases: list[tuple[int, Literal["device", "host"]]]) -> dict[str, Any]:
    """Two cases, and the speed of the second as a share of the first's."""
    config = Config(backbone=backbone, settings=NorMatchSettings(passes="split"))
    rows = []
    for n, pool in cases:
        rows.append(measure(config.replace(pool=pool), noise(n, side)))
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    return {"cases": rows, "second_to_first": rows[1]["steps_per_second"] / rows[0]["steps_per_second"]}


def main() -> None:
    if not torch.cuda.is_available():
        raise SystemExit("torch sees no GPU here: both pools are host memory then, and there is nothing to compare")
    report = {
        "what": "steps/s of NorMatch (split passes), 64 + 448 images a step, compiled and captured, median of 5",
        **circumstances(),
        "host_or_device": compare("resnet-18", 96, [(20_000, "device"), (20_000, "host")]),
        "many_or_few": compare("wrn-28-2", 32, [(50_000, "device"), (1_000_000, "device")]),
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
