"""What the runs of cifar10-40-fast get wrong on the test images, and the horses that the second takes for cats.

python benchmarks/errors.py RUN RUN RUN --took 505 513 515 --data-root data reads the folders of finished runs, label
seeds 0 to 2, and the seconds that `normatch reproduce fast --only fast-normatch --seeds N` took from start to end; it
writes benchmarks/results/cifar10-40-fast-errors.json and draws docs/pictures/cifar10-horses.jpg.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from fast import table
from mistaken import ACROSS, sheet, tiles

from normatch import recipes
from normatch.evaluate.answers import read_answers
from normatch.files import write_json
from normatch.training import Run
from normatch.training.job import open_corpus
from normatch.training.rounds import FIRST

RESULTS = Path(__file__).parent / "results" / "cifar10-40-fast-errors.json"
PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "cifar10-horses.jpg"
CAT, HORSE = 3, 7
SHOWN = 4 * ACROSS


def errors(run: Run, classes: tuple[str, ...], took: int) -> dict[str, Any]:
    """What is kept of a run of two rounds."""
    first = Run.open(run.path / FIRST)
    return {
        **{name: run.result[name] for name in ("seed", "accuracy", "seconds", "labels_by_class", "date")},
        "seconds of the whole command": took,
        "confusion: rows are the truth": table(run, classes),
        "suggestions: positions": np.setdiff1d(run.split.labelled, first.split.labelled).tolist(),
        "first": {
            **{name: first.result[name] for name in ("accuracy", "seconds", "steps")},
            "confusion: rows are the truth": table(first, classes),
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs=3, type=Path, metavar="RUN")
    parser.add_argument("--took", nargs=3, type=int, required=True, metavar="SECONDS")
    parser.add_argument("--data-root", type=Path, required=True, help="the folder of CIFAR-10")
    given = parser.parse_args()
    corpus = open_corpus(recipes.cifar10_fast().replace(data_root=given.data_root))
    train, test = corpus.train, corpus.test
    assert test is not None
    runs = [Run.open(path) for path in given.runs]
    found = [errors(run, train.classes, took) for run, took in zip(runs, given.took, strict=True)]
    what = "cifar10-40-fast on the 10,000 test images of CIFAR-10; positions are training images"
    write_json(RESULTS, {"what": what, "runs": found})

    labelled, answers = runs[1].split.labelled, read_answers(runs[1], train.classes)
    assert answers is not None
    mistaken = np.flatnonzero((answers.labels == HORSE) & (answers.guess == CAT))
    parts = {
        "the labelled horses of label seed 1": labelled[train.labels[labelled] == HORSE],
        f"the first {SHOWN} of {len(mistaken)} test horses that are taken for cats": mistaken[:SHOWN],
    }
    drawn = {title: tiles(data, rows) for (title, rows), data in zip(parts.items(), (train, test), strict=True)}
    sheet(drawn).save(PICTURE, quality=85)


if __name__ == "__main__":
    main()
