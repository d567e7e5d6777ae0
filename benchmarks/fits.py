"""Fits of the scikit-learn estimator to digits as images: by SGD in 600 and 256 steps, and by default, with Muon.

python benchmarks/fits.py fits six seeds of each, with 20 and 40 labels, and writes benchmarks/results/fits.json.
"""

import time
from pathlib import Path
from typing import Any

import numpy as np
from many_runs import DIGITS, write_all
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from normatch import NorMatchClassifier

RESULTS = Path(__file__).parent / "results" / "fits.json"
LABELS = (20, 40)
SEEDS = range(10, 16)
"""The number of steps was chosen on seeds 0 to 5."""
WAYS: dict[str, dict[str, Any]] = {
    "sgd": {"steps": 600, "muon": 0.0},
    "sgd, as many steps": {"steps": 256, "muon": 0.0},
    "default": {},
}


def trained(task: tuple[int, int]) -> list[dict[str, Any]]:
    """The outcomes of each way with so many labels and this seed."""
    labels, seed = task
    digits = load_digits()
    images = (digits.images * 15.9).astype(np.uint8)
    x, x_test, y, y_test = train_test_split(
        images, digits.target, test_size=360, random_state=seed, stratify=digits.target
    )
    rng, known = np.random.default_rng(seed), np.full(len(y), -1)
    for label in range(10):
        few = rng.permutation(np.flatnonzero(y == label))[: labels // 10]
        known[few] = label
    rows = []
    for way, choices in WAYS.items():
        start = time.perf_counter()
        model = NorMatchClassifier(seed=seed, device="cpu", **choices).fit(x, known)
        seconds = time.perf_counter() - start
        found = {"way": way, "labels": labels, "seed": seed, "steps": model.n_iter_, "seconds": seconds}
        rows.append(found | {"accuracy": model.score(x_test, y_test)})
        print(rows[-1], flush=True)
    return rows


if __name__ == "__main__":
    write_all(RESULTS, DIGITS, trained, LABELS, SEEDS)
