"""The search for a recipe of minutes: its choices, its judges, and what it has recorded."""

import dataclasses
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from normatch import recipes
from normatch.config import to_json
from normatch.data import Corpus, Dataset
from normatch.files import read_json
from normatch.nets import find_backbone
from normatch.training import train
from tests.docs.scripts import BENCHMARKS, brief, load_script, noise, put_registries_back

PROJECT = Path(__file__).parents[2]


@pytest.fixture
def search(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, with its networks and methods registered for the time of a test."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    module = load_script("fast")
    put_registries_back(monkeypatch)
    module.add_what_was_tried()
    return module


def test_every_choice_makes_a_config(search: ModuleType) -> None:
    for choice, changes in search.CHOICES.items():
        config = search.config_of(choice, 250, 100, 1200)
        assert find_backbone(config.backbone).partial
        assert (config.steps, config.epoch, config.evaluate_every, config.seed) == (1200, 12, 100, 100)
        fields = to_json(config)
        for name, value in changes.items():
            part, _, field = name.rpartition(".")
            assert (fields[part][field] if part else fields[field]) == value
        optim = dataclasses.replace(config.optim, lr=0.03, cosine=7 / 16, weight_decay=5e-4)
        assert optim == recipes.cifar10().optim


def test_a_choice_may_have_further_changes(search: ModuleType) -> None:
    config = search.config_of("three-ops+optim.muon=0.01+backbone=wrn-28-2", 250, 100, 1200)
    expected = search.config_of("three-ops", 250, 100, 1200)
    optim = dataclasses.replace(expected.optim, muon=0.01)
    assert config == expected.replace(name=config.name, optim=optim, backbone="wrn-28-2")


def test_the_judges_are_apart_and_balanced(search: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "HELD_OUT", 3)
    labels = np.arange(100) % 10
    images = np.broadcast_to(np.arange(100, dtype=np.uint8)[:, None, None, None], (100, 4, 4, 3))
    whole = Corpus("cifar10", Dataset(images, labels, tuple(map(str, range(10)))), None)
    corpus, again = search.held_out(whole), search.held_out(whole)
    judges, rest = (set(part.inputs[:, 0, 0, 0].tolist()) for part in (corpus.test, corpus.train))
    assert judges | rest == set(range(100))
    assert not judges & rest
    assert np.bincount(corpus.test.labels).tolist() == [3] * 10
    assert np.array_equal(corpus.test.inputs, again.test.inputs)


def test_what_is_kept_of_a_run(search: ModuleType, tmp_path: Path) -> None:
    config = recipes.digits().replace(steps=6, log_every=2, evaluate_every=3, epoch=2)
    kept = search.outcome("quick-resnet", train(config, tmp_path / "run"), tuple(map(str, range(10))))
    assert [step for step, _ in kept["evaluations"]] == [3, 6]
    assert kept["accuracy"] == kept["evaluations"][-1][1]
    assert kept["steps_per_second"] > 0
    assert [len(point) for point in kept["pseudo-labels right, and above 0.95"]] == [3, 3, 3]
    table = np.array(kept["confusion: rows are the truth"])
    assert np.trace(table) / table.sum() == pytest.approx(kept["accuracy"])


def test_what_was_recorded_is_of_these_choices(search: ModuleType) -> None:
    runs = read_json(search.RESULTS)["runs"]
    assert {run["choice"] for run in runs} == set(search.CHOICES)
    for run in runs:
        assert run["changes"] == search.CHOICES[run["choice"]]
        assert run["seed"] >= 100


def test_a_run_suggests_more_labels(search: ModuleType, tmp_path: Path) -> None:
    corpus, config = noise(), brief("normatch", 2)
    first = train(config, tmp_path / "first", corpus=corpus)
    more, noted = search.with_more_labels(corpus, first, 15, 100)
    (fold,) = more.folds
    assert len(fold) == 15
    assert set(first.split.labelled.tolist()) < set(fold.tolist())
    added = np.setdiff1d(fold, first.split.labelled)
    assert noted["suggestions: positions"] == added.tolist()
    rows = noted["suggestions: class, guess, and how many are alike"]
    assert sorted(row[0] for row in rows) == sorted(corpus.train.labels[added].tolist())
    run = train(config.replace(labels=15, fold=0), tmp_path / "second", corpus=more)
    assert run.split.labelled.tolist() == fold.tolist()


def test_the_sheet_of_mistaken_images(search: ModuleType) -> None:
    mistaken = load_script("mistaken")
    labels = np.arange(100) % 10
    images = np.broadcast_to(np.arange(100, dtype=np.uint8)[:, None, None, None], (100, 4, 4, 3))
    corpus = Corpus("cifar10", Dataset(images, labels, tuple(map(str, range(10)))), None)
    birds = mistaken.labelled_birds(corpus, 100)
    assert labels[birds].tolist() == [mistaken.BIRD] * 4
    many = np.resize(birds, mistaken.ACROSS + 1)
    sheet = np.asarray(
        mistaken.sheet({"few": mistaken.tiles(corpus.train, birds), "many": mistaken.tiles(corpus.train, many)})
    )
    side = mistaken.TILE + mistaken.GAP
    assert sheet.shape == (3 * side + 2 * mistaken.TITLE + mistaken.GAP, mistaken.ACROSS * side + mistaken.GAP, 3)
    last = sheet[2 * (mistaken.TITLE + side) + mistaken.TILE // 2, mistaken.GAP + mistaken.TILE // 2]
    assert last.tolist() == [many[-1]] * 3
