"""Other ways to ask for labels, and what is kept of runs that asked."""

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from normatch import recipes
from normatch.training import train
from tests.docs.scripts import BENCHMARKS, load_script

GROUPS = np.repeat([0, 1, 2, 3], [40, 30, 20, 10])


@pytest.fixture(autouse=True)
def _scripts_find_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


@pytest.fixture
def asking(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, for which four groups of digits lie in four directions, and the smallest is most in doubt."""
    module = load_script("how_to_ask")
    directions = np.eye(4)[GROUPS] + np.random.default_rng(0).normal(0, 0.01, (100, 4))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    monkeypatch.setattr(module, "seen", lambda *_: (directions, np.where(GROUPS == 3, 0.9, 0.01)))
    return module


@pytest.mark.parametrize(
    ("way", "groups"), [("covering", [1, 2, 3]), ("covering, in doubt", [3, 1, 2]), ("finer kinds", [3, 1, 2])]
)
def test_each_way_asks_for_groups_without_a_label(asking: ModuleType, way: str, groups: list[int]) -> None:
    first = np.array([0])
    chosen = asking.ASKING[way](None, None, first, 3, 0)
    found = GROUPS[chosen].tolist()
    if way == "finer kinds":  # groups are parted there, so that one may be asked for twice
        assert found[0] == 3
        assert len(set(chosen.tolist())) == 3
    else:
        assert found == groups


def test_the_adviser_is_seen_as_it_is(tmp_path: Path) -> None:
    module = load_script("how_to_ask")
    config = recipes.digits().replace(steps=2, epoch=1)
    run = train(config, tmp_path / "run")
    corpus = module.with_test_set(config, module.open_corpus(config))
    x, doubt = module.seen(corpus, run)
    assert len(x) == len(doubt) == len(corpus.train)
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1)
    assert ((doubt >= 0) & (doubt <= 0.9)).all()


def test_what_is_kept_of_errors(tmp_path: Path) -> None:
    module = load_script("errors")
    run = train(recipes.digits().replace(steps=14, epoch=7, suggested=20), tmp_path / "run")
    kept = module.errors(run, tuple(map(str, range(10))), 12)
    for part in (kept, kept["first"]):
        table = np.array(part["confusion: rows are the truth"])
        assert table.sum() == 360
        assert np.trace(table) / 360 == pytest.approx(part["accuracy"])
    assert kept["first"]["steps"] == 2
    assert len(kept["suggestions: positions"]) == 20
    assert set(kept["suggestions: positions"]) < set(run.split.labelled.tolist())
