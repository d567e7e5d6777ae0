"""The demonstration: what the same 40 labelled digits give to four learners."""

import tempfile
from pathlib import Path

import numpy as np

from normatch import recipes
from normatch.data import UNKNOWN
from normatch.engine.job import Job, prepare
from normatch.engine.progress import shown
from normatch.engine.train import train

__all__ = ["label_spreading", "run_demo"]


def run_demo(seed: int = 0, out: Path | None = None) -> None:
    """Train supervised, FixMatch and NorMatch, fit LabelSpreading, and print their accuracy on held-out digits."""
    base = recipes.digits(labels=40, seed=seed)
    job = prepare(base)
    test = len(job.corpus.test or ())
    print(f"digits: {len(job.split.labelled)} labels, {len(job.split.unlabelled)} training digits, {test} held out\n")
    rows = [("scikit-learn LabelSpreading", label_spreading(job))]
    with tempfile.TemporaryDirectory() as folder:
        for method in ("supervised", "fixmatch", "normatch"):
            config = base.replace(method=method)
            with shown(method) as progress:
                run = train(config, (out or Path(folder)) / method, progress=progress)
            rows.append((NAMES[method], run.accuracy or 0.0))
    rows.sort(key=lambda row: row[1])
    print(f"\naccuracy on {test} held-out digits, 40 labels, seed {seed}")
    for name, accuracy in rows:
        print(f"  {name:<28} {accuracy:6.1%}  {'█' * round(accuracy * 40)}")
    if out is not None:
        print(f"\nruns: {out}")


NAMES = {"supervised": "the 40 labels alone", "fixmatch": "FixMatch", "normatch": "NorMatch"}


def label_spreading(job: Job) -> float:
    """scikit-learn's best semi-supervised classifier on these digits, on the same split: 7 nearest neighbours."""
    from sklearn.semi_supervised import LabelSpreading

    train, test = job.corpus.train, job.corpus.test
    assert test is not None
    labels = np.full(len(train), UNKNOWN)
    labels[job.split.labelled] = train.labels[job.split.labelled]
    model = LabelSpreading(kernel="knn", n_neighbors=7).fit(_flat(train.inputs), labels)
    return float(model.score(_flat(test.inputs), test.labels))


def _flat(images: np.ndarray) -> np.ndarray:
    return images.reshape(len(images), -1) / 255
