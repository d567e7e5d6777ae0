"""Feature vectors with 4 labels a class: our estimators beside scikit-learn's, on the same splits.

python benchmarks/features.py --cifar10 FOLDER     fits all on five seeds and writes results/features.json
python benchmarks/features.py --choose ...         compares settings on validation items of seeds 100 to 102 and writes
                                                   results/features-choices.json; test items have no part in it
"""

import argparse
import multiprocessing
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
import torch
from numpy.typing import NDArray
from photographs import photograph_features
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier
from threadpoolctl import threadpool_limits

from normatch import FixMatchClassifier, NorMatchClassifier
from normatch.augment import AugmentConfig
from normatch.data import UNKNOWN
from normatch.data.holdout import stratified
from normatch.files import write_json
from normatch.seeding import permutation
from normatch.training.machine import circumstances

RESULTS = Path(__file__).parent / "results"
SEEDS = range(5)
CHOICE_SEEDS = range(100, 103)
LABELS = 4
"""Labels a class."""
TEST_SHARE = 1 / 3
"""Test items: the same for all seeds, and unseen when settings are chosen."""
VALIDATION_SHARE = 1 / 4
"""Of the other items, where settings are chosen; drawn anew by each seed."""

Make = Callable[[int], Any]
"""An estimator for a seed."""


@dataclass(frozen=True)
class Task:
    """A table of feature vectors and their classes."""

    name: str
    x: NDArray[Any]
    y: NDArray[np.int64]


@dataclass(frozen=True)
class Problem:
    """What an estimator is given, and what it is asked."""

    x: NDArray[np.float64]
    labels: NDArray[np.int64]
    asked: NDArray[np.float64]
    truth: NDArray[np.int64]


def pose(task: Task, seed: int, *, choosing: bool) -> Problem:
    """The pool with 4 labels a class, standardised by the pool, and the held-out items."""
    test = stratified(task.y, TEST_SHARE, 0, "features-test")
    pool = np.setdiff1d(np.arange(len(task.y)), test)
    asked = test
    if choosing:
        asked = pool[stratified(task.y[pool], VALIDATION_SHARE, seed, "features-validation")]
        pool = np.setdiff1d(pool, asked)
    labels = np.full(len(pool), UNKNOWN, dtype=np.int64)
    for c in np.unique(task.y):
        members = np.flatnonzero(task.y[pool] == c)
        labels[members[permutation(len(members), seed, "features-labels", int(c))[:LABELS]]] = c
    scaler = StandardScaler().fit(task.x[pool])
    return Problem(scaler.transform(task.x[pool]), labels, scaler.transform(task.x[asked]), task.y[asked])


def score(make: Make, task: Task, seed: int, *, choosing: bool = False) -> dict[str, Any]:
    """Accuracy on the held-out items, and the processor's seconds in the fit, which other work does not stretch."""
    problem = pose(task, seed, choosing=choosing)
    known = problem.labels != UNKNOWN
    estimator = make(seed)
    start = time.process_time()
    # LabelSpreading divides 0 by 0 where no label reaches an item over the graph of neighbours, and guesses there.
    with np.errstate(invalid="ignore"):
        if isinstance(estimator, LogisticRegression):
            estimator.fit(problem.x[known], problem.labels[known])
        else:
            estimator.fit(problem.x, problem.labels)
        seconds = time.process_time() - start
        accuracy = float(estimator.score(problem.asked, problem.truth))
    return {"task": task.name, "seed": seed, "accuracy": accuracy, "seconds": round(seconds, 3)}


def tables() -> list[Task]:
    loaders = {"digits": load_digits, "breast cancer": load_breast_cancer, "wine": load_wine}
    return [Task(name, *load(return_X_y=True)) for name, load in loaders.items()]


def logistic(c: float, seed: int) -> Any:
    return LogisticRegression(C=c, max_iter=2000)


def self_training(c: float, threshold: float, seed: int) -> Any:
    return SelfTrainingClassifier(LogisticRegression(C=c, max_iter=2000), threshold=threshold)


def spreading(settings: dict[str, Any], seed: int) -> Any:
    return LabelSpreading(**settings)


def ours(kind: type[Any], settings: dict[str, Any], seed: int) -> Any:
    return kind(**settings, seed=seed)


OURS = (FixMatchClassifier, NorMatchClassifier)
SETTINGS: dict[str, dict[str, Any]] = {
    f"{backbone} mask={mask} mix={mix} steps={steps}": {
        "backbone": backbone,
        "augment": AugmentConfig(mask=mask, mix=mix),
        "steps": steps,
        "ratio": 3,
    }
    for backbone, mask, mix, steps in (
        ("linear", 0.3, 0.0, 150),
        ("linear", 0.5, 0.5, 150),
        ("mlp", 0.3, 0.0, 150),
        ("mlp", 0.5, 0.5, 150),
        ("mlp", 0.5, 0.5, 300),
    )
}
"""Settings of our estimators that were compared."""

ESTIMATORS: dict[str, Make] = {
    "LogisticRegression": partial(logistic, 0.1),
    "SelfTraining": partial(self_training, 1.0, 0.75),
    "LabelSpreading": partial(spreading, {"kernel": "knn", "n_neighbors": 20}),
    "FixMatch": partial(ours, FixMatchClassifier, {}),
    "NorMatch": partial(ours, NorMatchClassifier, {}),
}
"""As they are compared: each with the settings chosen for it, which are the defaults of ours."""


def candidates() -> dict[str, Make]:
    """The settings that were compared, for scikit-learn's classifiers as for ours; one choice for all tasks."""
    found: dict[str, Make] = {f"LogisticRegression C={c}": partial(logistic, c) for c in (0.01, 0.1, 1.0, 10.0)}
    for c in (0.1, 1.0):
        for threshold in (0.6, 0.75, 0.9):
            found[f"SelfTraining C={c} threshold={threshold}"] = partial(self_training, c, threshold)
    for k in (5, 7, 10, 20):
        found[f"LabelSpreading neighbours={k}"] = partial(spreading, {"kernel": "knn", "n_neighbors": k})
    for gamma in (0.01, 0.1):
        found[f"LabelSpreading gamma={gamma}"] = partial(spreading, {"kernel": "rbf", "gamma": gamma})
    for kind in OURS:
        for choice, settings in SETTINGS.items():
            found[f"{kind.__name__} {choice}"] = partial(ours, kind, settings)
    return found


def choose(tasks: list[Task]) -> None:
    """Every candidate on the validation items of seeds 100 and on; prints and writes the means."""
    makes = candidates()
    runs = measure(makes, tasks, CHOICE_SEEDS, choosing=True)
    rows = []
    for name in makes:
        mine = [run for run in runs if run["estimator"] == name]
        means = {t.name: 100 * statistics.mean(r["accuracy"] for r in mine if r["task"] == t.name) for t in tasks}
        rows.append({"estimator": name, "mean": statistics.mean(means.values()), "tasks": means})
        print(f"{name:<56}{rows[-1]['mean']:6.2f}  " + "  ".join(f"{mean:5.1f}" for mean in means.values()))
    what = "Mean validation accuracy (%) of settings on feature vectors with 4 labels a class"
    _write(RESULTS / "features-choices.json", what, {"means": rows, "runs": runs})


def compare(tasks: list[Task]) -> None:
    """Every estimator on the test items of seeds 0 to 4; writes the runs."""
    runs = measure(ESTIMATORS, tasks, SEEDS, choosing=False)
    _write(RESULTS / "features.json", "Test accuracy on feature vectors with 4 labels a class", {"runs": runs})


def measure(makes: dict[str, Make], tasks: list[Task], seeds: range, *, choosing: bool) -> list[dict[str, Any]]:
    """All estimators on all tasks and seeds, two at a time."""
    jobs = [(name, make, task, seed, choosing) for name, make in makes.items() for task in tasks for seed in seeds]
    runs = []
    with multiprocessing.get_context("spawn").Pool(2, _one_thread) as pool:
        for run in pool.imap(_score, jobs):
            runs.append(run)
            print(run, flush=True)
    return runs


def _one_thread() -> None:
    """One thread for torch and for the linear algebra of NumPy and SciPy, whose threads would else wait for cores."""
    torch.set_num_threads(1)
    threadpool_limits(1)


def _score(job: tuple[str, Make, Task, int, bool]) -> dict[str, Any]:
    name, make, task, seed, choosing = job
    return {"estimator": name} | score(make, task, seed, choosing=choosing)


def _write(path: Path, what: str, content: dict[str, Any]) -> None:
    report = {"what": what, **circumstances(), "seconds": "of the processor, on one thread, in a fit"}
    report["versions"] |= {"sklearn": sklearn.__version__}
    write_json(path, report | content)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--choose", action="store_true", help="compare settings on validation items")
    parser.add_argument("--cifar10", type=Path, help="folder of CIFAR-10; without it that task is left out")
    parser.add_argument(
        "--backbone", type=Path, default=Path("runs/cifar10-source"), help="its run; trained if missing"
    )
    given = parser.parse_args()
    torch.set_num_threads(1)
    tasks = tables()
    if given.cifar10 is not None:
        tasks.append(Task("CIFAR-10 features", *photograph_features(given.cifar10, given.backbone)))
    (choose if given.choose else compare)(tasks)


if __name__ == "__main__":
    main()
