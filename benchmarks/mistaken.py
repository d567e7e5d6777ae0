"""Held-out birds that two networks of the search take for deer, beside the labelled birds of their label seeds.

python benchmarks/mistaken.py RUN RUN --data-root data reads the models of two runs that fast.py kept (--keep), writes
which birds they are, which wrong names their suggestions show, and whether suggestions find such birds, to
benchmarks/results/cifar10-birds.json, and draws docs/pictures/cifar10-birds.jpg.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from fast import held_out, suggested
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from normatch import recipes
from normatch.data import Corpus, Dataset, draw_split
from normatch.evaluate import Predictor, load
from normatch.files import write_json
from normatch.training.job import open_corpus

RESULTS = Path(__file__).parent / "results" / "cifar10-birds.json"
PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "cifar10-birds.jpg"
BIRD, DEER = 2, 4
ACROSS, TILE, GAP, TITLE = 11, 64, 4, 28
TRIES = 6


def labelled_birds(corpus: Corpus, seed: int) -> NDArray[np.int64]:
    labelled = draw_split(corpus, 40, seed).labelled
    birds: NDArray[np.int64] = labelled[corpus.train.labels[labelled] == BIRD]
    return birds


def taken_for_deer(data: Dataset, models: Sequence[Predictor]) -> list[NDArray[np.int64]]:
    """The birds that each network takes for deer."""
    birds = np.flatnonzero(data.labels == BIRD)
    return [birds[model.predict_proba(data.inputs[birds]).argmax(1) == DEER] for model in models]


def suggestions(corpus: Corpus, model: Predictor, seed: int) -> list[tuple[NDArray[np.int64], list[list[int]]]]:
    """20 of them for each of TRIES first clusters, as :func:`fast.suggested` gives them."""
    labelled = draw_split(corpus, 40, seed).labelled
    return [suggested(corpus, model, labelled, 20, seed=start) for start in range(TRIES)]


def tiles(data: Dataset, positions: NDArray[np.int64]) -> list[Image.Image]:
    return [Image.fromarray(data.inputs[i]).resize((TILE, TILE), Image.Resampling.BICUBIC) for i in positions]


def sheet(parts: dict[str, list[Image.Image]]) -> Image.Image:
    """The pictures of each part under its title."""
    rows = [-(-len(part) // ACROSS) for part in parts.values()]
    side = TILE + GAP
    drawn = Image.new("RGB", (ACROSS * side + GAP, sum(rows) * side + len(rows) * TITLE + GAP), "white")
    pen, font, top = ImageDraw.Draw(drawn), ImageFont.load_default(15), 0
    for (title, part), height in zip(parts.items(), rows, strict=True):
        pen.text((GAP, top + 6), title, (30, 30, 30), font)
        for number, picture in enumerate(part):
            drawn.paste(picture, (GAP + number % ACROSS * side, top + TITLE + number // ACROSS * side))
        top += TITLE + height * side
    return drawn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs=2, type=Path, metavar="RUN", help="their names end in seedN")
    parser.add_argument("--data-root", type=Path, required=True, help="the folder of CIFAR-10")
    given = parser.parse_args()
    corpus = held_out(open_corpus(recipes.cifar10().replace(data_root=given.data_root)))
    assert corpus.test is not None  # the held-out images
    seeds = [int(run.name.rpartition("seed")[2]) for run in given.runs]
    models = [load(run, "auto") for run in given.runs]
    each = taken_for_deer(corpus.test, models)
    both = np.intersect1d(each[0], each[1])
    first, second = taken_for_deer(corpus.train, models)
    alike = np.intersect1d(first, second)
    made = [suggestions(corpus, model, seed) for model, seed in zip(models, seeds, strict=True)]
    write_json(
        RESULTS,
        {
            "what": "held-out birds of CIFAR-10 that are taken for deer by two networks; positions are held-out images",
            "runs": [run.name for run in given.runs],
            "by each": [one.tolist() for one in each],
            "by both": both.tolist(),
            "training images, and birds of these that both take for deer": [len(corpus.train), len(alike)],
            "wrong of 20 suggestions of each: class, guess, and how many of 20,000 are alike": [
                [row for row in rows if row[0] != row[1]] for (_, rows), *_ in made
            ],
            f"such birds among 20 suggestions of each, {TRIES} times": [
                [len(np.intersect1d(chosen, alike)) for chosen, _ in mine] for mine in made
            ],
        },
    )
    labelled = [one for seed in seeds for one in tiles(corpus.train, labelled_birds(corpus, seed))]
    titles = f"the labelled birds of label seeds {seeds[0]} and {seeds[1]}", "held-out birds that both take for deer"
    sheet(dict(zip(titles, (labelled, tiles(corpus.test, both)), strict=True))).save(PICTURE, quality=85)


if __name__ == "__main__":
    main()
