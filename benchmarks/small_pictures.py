"""Somebody's small photographs on a CPU: by SGD, with Muon as `normatch train --data` chooses it, and that in `split`.

python benchmarks/small_pictures.py CIFAR10 trains all for 256 and 1,024 steps, with 100 and 400 labels and three seeds,
and writes benchmarks/results/small-pictures.json. CIFAR10 is the folder of the data set. A seed draws 20,000 of
its training photographs, halved to 16×16 pixels, the labelled ones among them, and 2,000 others that judge.
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from many_runs import write_all
from photographs import halve, read_photographs

from normatch import recipes
from normatch.autoconfig import plan
from normatch.methods.normatch import NorMatchSettings
from normatch.methods.parts.passes import Passes
from normatch.training import train

RESULTS = Path(__file__).parent / "results" / "small-pictures.json"
WHAT = (
    "20,000 photographs of CIFAR-10 at 16×16 pixels, trained with the settings that `normatch train --data` chooses "
    "on a CPU: accuracy of the last averaged weights on 2,000 others, all of the training part"
)
PLACE = "NORMATCH_CIFAR10"
"""The variable by which the folder of the data set reaches the processes."""
ITEMS, JUDGES = 20_000, 2_000
STEPS = (256, 1024)
LABELS = (100, 400)
SEEDS = range(10, 13)
"""Muon's learning rate was chosen on seeds 0 to 2."""
WAYS: dict[str, tuple[Passes, frozenset[str]]] = {
    "sgd": ("joint", frozenset({"optim.muon"})),
    "muon": ("joint", frozenset()),
    "split": ("split", frozenset()),
}
"""The passes that a user asks for (`joint` is the recipe's, for which `shared` is chosen), and what stays as in the
recipe."""
KEPT = ("seed", "accuracy", "steps", "seconds", "hardware")


def write_arrays(path: Path, labels: int, seed: int) -> None:
    """The photographs of a seed as a user's file: so many are labelled, equally many of each class."""
    (images, classes), _ = read_photographs(Path(os.environ[PLACE]))
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(classes))
    learning, judging = order[:ITEMS], order[ITEMS : ITEMS + JUDGES]
    known = np.full(ITEMS, -1)
    for label in range(10):
        known[np.flatnonzero(classes[learning] == label)[: labels // 10]] = label
    np.savez(
        path,
        images=halve(images[learning]),
        labels=known,
        test_images=halve(images[judging]),
        test_labels=classes[judging],
    )


def trained(task: tuple[int, int]) -> list[dict[str, Any]]:
    """The outcomes of each way and length with so many labels and this seed."""
    labels, seed = task
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "photographs.npz"
        write_arrays(file, labels, seed)
        for steps in STEPS:
            for way, (passes, fixed) in WAYS.items():
                config = recipes.own(file, seed).replace(
                    steps=steps, device="cpu", settings=NorMatchSettings(passes=passes)
                )
                made = plan(config, Path(folder) / f"{way}-{steps}", fixed=fixed)
                run = train(made.config, Path(folder) / f"{way}-{steps}", corpus=made.corpus)
                settings: Any = made.config.settings
                chosen = {"muon": made.config.optim.muon, "passes": settings.passes}
                rows.append({"labels": labels, "way": way} | chosen | {key: run.result[key] for key in KEPT})
                print(rows[-1], flush=True)
    return rows


if __name__ == "__main__":
    os.environ[PLACE] = sys.argv[1]
    write_all(RESULTS, WHAT, trained, LABELS, SEEDS)
