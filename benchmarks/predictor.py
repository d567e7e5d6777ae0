"""The speed of the predictor beside that of the bare network on the same batches: python benchmarks/predictor.py

``predict_proba`` is compared with the network and its head, ``label`` with network, head and flow: 1 is no cost at all.
Both take the same array in turns; the best of the repeats counts, in seconds of the processor, which a busy machine
does not stretch.
"""

import json
import time
from collections.abc import Callable

import numpy as np
import torch

from normatch.evaluate.predictor import MOST, Predictor
from normatch.nets.model import HeadSpec, Model, ModelSpec

ITEMS = 20_000
REPEATS = 3


def best(work: list[Callable[[], object]]) -> list[float]:
    """Seconds of each, the best of several turns."""
    seconds = [float("inf")] * len(work)
    for _ in range(REPEATS):
        for i, task in enumerate(work):
            start = time.process_time()
            task()
            seconds[i] = min(seconds[i], time.process_time() - start)
    return seconds


def compare(backbone: str, shape: tuple[int, int, int], items: int = ITEMS) -> dict[str, object]:
    channels, height, width = shape
    images = np.random.default_rng(0).integers(0, 256, (items, height, width, channels), dtype=np.uint8)
    spec = ModelSpec(
        backbone,
        shape,
        tuple(map(str, range(10))),
        (127.0,) * channels,
        (64.0,) * channels,
        auxiliary=(HeadSpec("nfc"),),
    )
    torch.manual_seed(0)
    predictor = Predictor(Model(spec))
    inputs = torch.from_numpy(images).permute(0, 3, 1, 2)

    def through(network: Callable[[torch.Tensor], object]) -> None:
        with torch.inference_mode():
            for batch in inputs.split(MOST):
                network(batch)

    bare, proba, opinions, label = best(
        [
            lambda: through(predictor.model),
            lambda: predictor.predict_proba(images),
            lambda: through(predictor.model.opinions),
            lambda: predictor.label(images),
        ],
    )
    return {
        "backbone": backbone,
        "shape": shape,
        "items": items,
        "batch": MOST,
        "network_per_second": round(items / bare),
        "predict_proba": round(bare / proba, 3),
        "label": round(opinions / label, 3),
    }


if __name__ == "__main__":
    print(json.dumps(compare("small-wide", (1, 8, 8))))
    print(json.dumps(compare("wrn-28-2", (3, 32, 32), items=512)))
