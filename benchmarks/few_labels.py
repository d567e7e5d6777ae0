"""Digits with one, two and four labels a class: NorMatch, the same with a contrast of its views at the start, and in
twice the steps: in one run, or in two of which the second is told what the first is surest of.

python benchmarks/few_labels.py trains six seeds of each and writes benchmarks/results/digits-few-labels.json.
"""

import tempfile
from pathlib import Path
from typing import Any

import contrast
import succession
from many_runs import DIGITS, write_all

from normatch import recipes
from normatch.training import train
from normatch.training.job import open_corpus, with_test_set

RESULTS = Path(__file__).parent / "results" / "digits-few-labels.json"
LABELS = (10, 20, 40)
SEEDS = range(300, 306)
"""The temperature and length of the contrast were chosen on seeds 200 to 205."""
KEPT = ("labels", "seed", "accuracy", "steps", "seconds", "hardware")


def trained(task: tuple[int, int]) -> list[dict[str, Any]]:
    """The outcomes of each way with so many labels and this seed."""
    contrast.add_methods()
    succession.add_methods()
    labels, seed = task
    config = recipes.digits(labels, seed).replace(evaluate_every=100)
    ways = {
        "normatch": config,
        "normatch-likened": config.replace(method="normatch-likened"),
        "normatch, twice the steps": config.replace(steps=2 * config.steps, epoch=2 * config.epoch),
        "normatch-successor": config.replace(method="normatch-successor"),
    }
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        images = with_test_set(config, open_corpus(config)).train
        succession.Successor.before = succession.Predecessor(Path(folder) / "normatch", images)
        for way, chosen in ways.items():
            run = train(chosen, Path(folder) / way)
            curve = [[line["step"], line["test/accuracy"]] for line in run.metrics() if "test/accuracy" in line]
            rows.append({"way": way} | {key: run.result[key] for key in KEPT} | {"evaluations": curve})
            print({key: value for key, value in rows[-1].items() if key != "evaluations"}, flush=True)
    return rows


if __name__ == "__main__":
    write_all(RESULTS, DIGITS, trained, LABELS, SEEDS)
