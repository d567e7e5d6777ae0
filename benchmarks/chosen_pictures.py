"""Somebody's small photographs on a CPU, half of the labels suggested by a first network or all of them by chance.

python benchmarks/chosen_pictures.py CIFAR10 trains both with 100 and 400 labels, three seeds and 1,024 steps, with what
`normatch train --data` chooses, and writes benchmarks/results/chosen-pictures.json. The photographs are those of
small_pictures.py, all of them with labels that can be looked up.
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from many_runs import write_all
from small_pictures import ITEMS, KEPT, LABELS, PLACE, SEEDS, WHAT, write_arrays

from normatch import recipes
from normatch.autoconfig import plan
from normatch.training import train

RESULTS = Path(__file__).parent / "results" / "chosen-pictures.json"
STEPS = 1024
WAYS = {"chance": 0.0, "suggested": 0.5}
"""The share of the labels that is suggested."""


def trained(task: tuple[int, int]) -> list[dict[str, Any]]:
    """The outcomes of both ways with so many labels and this seed."""
    labels, seed = task
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "photographs.npz"
        write_arrays(file, 10 * ITEMS, seed)  # as many of each class as there are
        for way, share in WAYS.items():
            config = recipes.own(file, seed).replace(
                labels=labels, suggested=round(share * labels), steps=STEPS, device="cpu"
            )
            made = plan(config, Path(folder) / way)
            run = train(made.config, Path(folder) / way, corpus=made.corpus)
            rows.append({"labels": labels, "way": way} | {key: run.result[key] for key in (*KEPT, "labels_by_class")})
            print(rows[-1], flush=True)
    return rows


if __name__ == "__main__":
    os.environ[PLACE] = sys.argv[1]
    write_all(RESULTS, WHAT, trained, LABELS, SEEDS)
