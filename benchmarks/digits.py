"""Five seeds of digits-40 beside scikit-learn's semi-supervised classifiers, on the same splits.

python benchmarks/digits.py trains all of them and writes benchmarks/results/digits-40.json.
"""

import tempfile
from pathlib import Path
from typing import Any

import sklearn
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier

from normatch import recipes
from normatch.demo import rival_accuracy
from normatch.device import circumstances
from normatch.files import write_json
from normatch.training import prepare, train

RESULTS = Path(__file__).parent / "results" / "digits-40.json"
SEEDS = range(5)
METHODS = ("supervised", "fixmatch", "normatch")
RIVALS: dict[str, Any] = {
    "LabelSpreading": LabelSpreading(kernel="knn", n_neighbors=7),
    "SelfTraining": SelfTrainingClassifier(LogisticRegression(max_iter=1000)),
}
KEPT = ("seed", "accuracy", "steps", "seconds", "hardware")


def rivals(seed: int) -> list[dict[str, Any]]:
    """scikit-learn's classifiers on the same labelled, unlabelled and held-out digits."""
    job = prepare(recipes.digits(seed=seed))
    return [{"method": name, "seed": seed, "accuracy": rival_accuracy(job, model)} for name, model in RIVALS.items()]


def main() -> None:
    torch.set_num_threads(1)  # the last bits depend on it, and on a busy machine one is the quickest
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in SEEDS:
            rows += rivals(seed)
            for method in METHODS:
                config = recipes.digits(seed=seed).replace(method=method)
                result = train(config, Path(folder) / f"{method}-{seed}").result
                rows.append({"method": method} | {key: result[key] for key in KEPT})
                print(rows[-1], flush=True)
    report: dict[str, Any] = {
        "what": "digits-40: test accuracy of the last averaged weights, 40 labels, 1,437 training and 360 test digits",
        **circumstances(),
        "runs": rows,
    }
    report["versions"] |= {"sklearn": sklearn.__version__}
    write_json(RESULTS, report)


if __name__ == "__main__":
    main()
