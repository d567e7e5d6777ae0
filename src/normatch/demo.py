"""The demonstration: four methods compared on the same 40 labelled digits."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from normatch import recipes
from normatch.data import UNKNOWN
from normatch.data.dataset import Inputs
from normatch.errors import UserError
from normatch.report import write_report
from normatch.training.job import Job, prepare
from normatch.training.progress import shown
from normatch.training.run import Run
from normatch.training.train import train

__all__ = ["rival_accuracy", "run_demo"]


def run_demo(seed: int = 0, out: Path | None = None, steps: int | None = None) -> None:
    """Train supervised, FixMatch and NorMatch, fit LabelSpreading, and print their accuracy on held-out digits."""
    from sklearn.semi_supervised import LabelSpreading

    if out is not None:
        _must_take_runs(out)
    base = recipes.digits(labels=40, seed=seed)
    if steps is not None:
        base = base.replace(steps=steps)
    page = _page_to_keep() if out is None else out / "normatch" / "report.html"
    job = prepare(base)
    test = len(job.corpus.test or ())
    print(f"digits: {len(job.split.labelled)} labels, {len(job.split.unlabelled)} training digits, {test} held out\n")
    rows = [("scikit-learn LabelSpreading", rival_accuracy(job, LabelSpreading(kernel="knn", n_neighbors=7)))]
    with tempfile.TemporaryDirectory() as folder:
        for method in NAMES:
            config = base.replace(method=method)
            with shown(method) as progress:
                run = train(config, (out or Path(folder)) / method, progress=progress)
            rows.append((NAMES[method], run.accuracy or 0.0))
        page = write_report(run.path, page, force=True)
    rows.sort(key=lambda row: row[1])
    print(f"\naccuracy on {test} held-out digits, 40 labels, seed {seed}")
    for name, accuracy in rows:
        print(f"  {name:<28} {accuracy:6.1%}  {'█' * round(accuracy * 40)}")
    if out is not None:
        print(f"\nruns: {out}")
    print(f"\nall about the NorMatch run: {page}")


NAMES = {"supervised": "the 40 labels alone", "fixmatch": "FixMatch", "normatch": "NorMatch"}


def _must_take_runs(out: Path) -> None:
    """Raise UserError, before anything is trained, if ``out`` is a run itself or has one of the runs already."""
    if (out / "config.json").is_file():
        Run.must_be_new(out)
    for method in NAMES:
        Run.must_be_new(out / method)


def _page_to_keep() -> Path:
    """The path of the report when the runs themselves are not kept; its folder is created."""
    page = Path("runs") / "demo.html"
    try:
        page.parent.mkdir(exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the folder runs ({error.strerror}): give --out, a folder for the runs") from error
    return page


def rival_accuracy(job: Job, classifier: Any) -> float:
    """Test accuracy of a scikit-learn classifier on the pixels of the same labelled, unlabelled and held-out images."""
    train, test = job.corpus.train, job.corpus.test
    assert test is not None
    labels = np.full(len(train), UNKNOWN)
    labels[job.split.labelled] = train.labels[job.split.labelled]
    # LabelSpreading divides 0 by 0 for digits that no label reaches over the neighbour graph; its guess there is fine.
    with np.errstate(invalid="ignore"):
        return float(classifier.fit(_flat(train.inputs), labels).score(_flat(test.inputs), test.labels))


def _flat(images: Inputs) -> NDArray[np.float64]:
    return np.asarray(images).reshape(len(images), -1) / 255.0
