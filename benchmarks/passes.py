"""What the ways of views through the backbone cost in accuracy, on CIFAR-10 shrunk to 8×8 pixels, for a CPU.

python benchmarks/passes.py ROOT trains joint, running and split on four label seeds, 400 labels each, and writes
results/passes-8x8.json; ROOT is the folder that holds CIFAR-10's files.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from normatch import recipes
from normatch.augment import AugmentConfig
from normatch.data import load_corpus
from normatch.engine import train
from normatch.engine.machine import circumstances
from normatch.files import write_json
from normatch.methods.normatch import NorMatchSettings
from normatch.methods.parts.passes import Passes

RESULTS = Path(__file__).parent / "results" / "passes-8x8.json"
PASSES: tuple[Passes, ...] = ("joint", "running", "split")
SEEDS = range(4)
ITEMS, STEPS = 20_000, 1_500


def shrunk(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Means of 4×4 pixels."""
    means: NDArray[np.float64] = images.reshape(-1, 8, 4, 8, 4, 3).mean((2, 4))
    return means.round().astype(np.uint8)


def pseudo_labels_right(records: list[dict[str, Any]]) -> float:
    """In the last tenth of training."""
    late = [r["pseudo/correct"] for r in records if r["step"] > 0.9 * STEPS and "pseudo/correct" in r]
    return float(np.mean(late))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    corpus = load_corpus("cifar10", parser.parse_args().root)
    assert corpus.test is not None
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "small.npz"
        np.savez(
            data,
            images=shrunk(corpus.train.inputs[:ITEMS]),
            labels=corpus.train.labels[:ITEMS],
            test_images=shrunk(corpus.test.inputs),
            test_labels=corpus.test.labels,
            classes=np.array(corpus.train.classes),
        )
        base = recipes.digits(labels=400).replace(
            data=str(data),
            test_share=0.0,
            augment=AugmentConfig(),
            steps=STEPS,
            epoch=75,
            evaluate_every=150,
            ema=0.995,
        )
        for seed in SEEDS:
            for passes in PASSES:
                config = base.replace(seed=seed, settings=NorMatchSettings(passes=passes))
                run = train(config, Path(folder) / f"{passes}-{seed}")
                records = list(run.metrics())
                row = {"passes": passes, "seed": seed, "accuracy": run.accuracy, "seconds": run.result["seconds"]}
                rows.append(row | {"pseudo_labels_right": pseudo_labels_right(records)})
                print(rows[-1], flush=True)
    what = f"NorMatch, small-wide, CIFAR-10 at 8×8, {ITEMS:,} images, 400 labels, {STEPS:,} steps: test accuracy"
    write_json(RESULTS, {"what": what, **circumstances(), "runs": rows})


if __name__ == "__main__":
    main()
