"""The demonstration: four methods compared on the same 40 labelled digits."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from normatch import recipes
from normatch.data import UNKNOWN
from normatch.report import write_report
from normatch.training.job import Job, prepare
from normatch.training.progress import shown
from normatch.training.run import Run
from normatch.training.train import train

__all__ = ["rival_accuracy", "run_demo"]


NAMES = {"supervised": "the 40 labels alone", "fixmatch": "FixMatch", "normatch": "NorMatch"}


def run_demo(seed: int = 0, out: Path | None = None, steps: int | None = None) -> None:
    """Train supervised, FixMatch and NorMatch, fit LabelSpreading, and print their accuracy on held-out digits."""
    from sklearn.semi_supervised import LabelSpreading

    base = recipes.digits(labels=40, seed=seed)
    if steps is not None:
        base = base.replace(steps=steps)
    for path in [out / method for method in NAMES] if out else []:
        Run.must_be_new(path)  # before anything is trained
    # Without --out only the page is kept.
    page = out / "normatch" / "report.html" if out else Path("runs") / "demo.html"
    if out is None:
        page.parent.mkdir(exist_ok=True)
    job = prepare(base)
    test = len(job.corpus.test or ())
    print(f"digits: {len(job.split.labelled)} labels, {len(job.split.unlabelled):,} training digits, {test} held out\n")
    rows = [("scikit-learn LabelSpreading", rival_accuracy(job, LabelSpreading(kernel="knn", n_neighbors=7)))]
    with tempfile.TemporaryDirectory() as folder:
        for method, name in NAMES.items():
            with shown(method) as progress:
                run = train(base.replace(method=method), (out or Path(folder)) / method, progress=progress)
            rows.append((name, run.accuracy or 0.0))
        page = write_report(run.path, page, force=True)
    print(f"\naccuracy on {test} held-out digits, 40 labels, seed {seed}")
    for name, accuracy in sorted(rows, key=lambda row: row[1]):
        print(f"  {name:<28} {accuracy:6.1%}  {'█' * round(accuracy * 40)}")
    print(f"\nruns: {out}" if out else "", f"all about the NorMatch run: {page}", sep="\n")


def rival_accuracy(job: Job, classifier: Any) -> float:
    """Test accuracy of a scikit-learn classifier on the pixels of the same labelled, unlabelled and held-out images."""
    train, test = job.corpus.train, job.corpus.test
    assert test is not None
    flat = [np.asarray(part.inputs).reshape(len(part), -1) / 255.0 for part in (train, test)]
    labels = np.full(len(train), UNKNOWN)
    labels[job.split.labelled] = train.labels[job.split.labelled]
    # LabelSpreading divides 0 by 0 for digits that no label reaches over the neighbour graph; its guess there is fine.
    with np.errstate(invalid="ignore"):
        return float(classifier.fit(flat[0], labels).score(flat[1], test.labels))
