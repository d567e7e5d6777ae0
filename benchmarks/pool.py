"""Steps a second on a GPU with images on the device and in host memory, and with few and many images.

python benchmarks/pool.py prints JSON: ResNet-18 on 20,000 images of 96×96 with either pool, and WRN-28-2 on 50,000 and
on 1,000,000 images of 32×32. All pixels are noise; a step draws 64 + 448 images, compiled and captured.
"""

import json
from typing import Any, Literal

import numpy as np
import torch

from normatch.config import Config
from normatch.data import Corpus, Dataset
from normatch.methods.normatch import NorMatchSettings
from normatch.training.bench import bench
from normatch.training.machine import circumstances


def noise(n: int, side: int) -> Corpus:
    images = np.random.default_rng(0).integers(0, 256, (n, side, side, 3), dtype=np.uint8)
    return Corpus("noise", Dataset(images, np.arange(n) % 10, tuple(map(str, range(10)))))


def measure(config: Config, corpus: Corpus) -> dict[str, Any]:
    """The median rate of steps, and what it was measured on."""
    report = bench(config, corpus=corpus)
    return {
        "backbone": config.backbone,
        "images": report["items"],
        "side": corpus.train.shape[1],
        "pool": config.pool,
        "steps_per_second": report["steps_per_second"],
        "repeats": report["repeats"],
        "hardware": report["hardware"],
    }


def compare(backbone: str, side: int, cases: list[tuple[int, Literal["device", "host"]]]) -> dict[str, Any]:
    """Two cases, and the speed of the second as a share of the first's."""
    config = Config(backbone=backbone, settings=NorMatchSettings(passes="split"))
    rows = [measure(config.replace(pool=pool), noise(n, side)) for n, pool in cases]
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
