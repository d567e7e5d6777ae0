"""Digits with one, two and four labels a class: NorMatch, and the same with a contrast of its views at the start.

python benchmarks/few_labels.py trains six seeds of each and writes benchmarks/results/digits-few-labels.json.
"""

import tempfile
from pathlib import Path
from typing import Any

import contrast
import torch

from normatch import recipes
from normatch.engine import train
from normatch.engine.machine import circumstances
from normatch.files import write_json

RESULTS = Path(__file__).parent / "results" / "digits-few-labels.json"
LABELS = (10, 20, 40)
SEEDS = range(300, 306)
"""The temperature and length of the contrast were chosen on seeds 200 to 205."""
METHODS = ("normatch", "normatch-likened")
KEPT = ("labels", "seed", "accuracy", "steps", "seconds", "hardware")


def main() -> None:
    torch.set_num_threads(1)  # the last bits depend on it, and on a busy machine one is the quickest
    contrast.add_methods()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for labels in LABELS:
            for seed in SEEDS:
                for method in METHODS:
                    config = recipes.digits(labels, seed).replace(method=method, evaluate_every=100)
                    run = train(config, Path(folder) / f"{method}-{labels}-{seed}")
                    curve = [[line["step"], line["test/accuracy"]] for line in run.metrics() if "test/accuracy" in line]
                    rows.append({"method": method} | {key: run.result[key] for key in KEPT} | {"evaluations": curve})
                    print(rows[-1], flush=True)
    what = "digits: test accuracy of the last averaged weights, 1,437 training and 360 test digits"
    write_json(RESULTS, {"what": what, **circumstances(), "runs": rows})


if __name__ == "__main__":
    main()
