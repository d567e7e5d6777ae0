"""Held-out birds that two networks of the search take for deer, beside the labelled birds of their label seeds.

python benchmarks/mistaken.py RUN RUN --data-root data reads the models of two runs that fast.py kept (--keep), writes
which birds they are, and which wrong names their suggestions show, to benchmarks/results/cifar10-birds.json, and draws
docs/pictures/cifar10-birds.jpg.
"""

import argparse
from pathlib import Path

import numpy as np
from fast import held_out, suggested
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from normatch import recipes
from normatch.data import Corpus, Dataset, draw_split
from normatch.engine.job import open_corpus
from normatch.evaluate import Predictor, load
from normatch.files import write_json

RESULTS = Path(__file__).parent / "results" / "cifar10-birds.json"
PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "cifar10-birds.jpg"
BIRD, DEER = 2, 4
ACROSS, TILE, GAP, TITLE = 11, 64, 4, 28


def labelled_birds(corpus: Corpus, seed: int) -> NDArray[np.int64]:
    labelled = draw_split(corpus, 40, seed).labelled
    birds: NDArray[np.int64] = labelled[corpus.train.labels[labelled] == BIRD]
    return birds


def wrong_suggestions(corpus: Corpus, model: Predictor, seed: int) -> list[list[int]]:
    """Of 20 suggestions those that the network guesses wrongly: class, guess, and how many are alike."""
    _, rows = suggested(corpus, model, draw_split(corpus, 40, seed).labelled, 20, seed=0)
    return [row for row in rows if row[0] != row[1]]


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
    birds = np.flatnonzero(corpus.test.labels == BIRD)
    seeds = [int(run.name.rpartition("seed")[2]) for run in given.runs]
    models = [load(run, "auto") for run in given.runs]
    each = [model.predict_proba(corpus.test.inputs[birds]).argmax(1) == DEER for model in models]
    both = birds[each[0] & each[1]]
    write_json(
        RESULTS,
        {
            "what": "held-out birds of CIFAR-10 that are taken for deer by two networks; positions are held-out images",
            "runs": [run.name for run in given.runs],
            "by each": [birds[one].tolist() for one in each],
            "by both": both.tolist(),
            "wrong of 20 suggestions of each: class, guess, and how many of 20,000 are alike": [
                wrong_suggestions(corpus, model, seed) for model, seed in zip(models, seeds, strict=True)
            ],
        },
    )
    labelled = [one for seed in seeds for one in tiles(corpus.train, labelled_birds(corpus, seed))]
    titles = f"the labelled birds of label seeds {seeds[0]} and {seeds[1]}", "held-out birds that both take for deer"
    sheet(dict(zip(titles, (labelled, tiles(corpus.test, both)), strict=True))).save(PICTURE, quality=85)


if __name__ == "__main__":
    main()
