"""How long a run will still take, told how fast a machine is."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from normatch.config import Config
from normatch.errors import UserError
from normatch.recipes import digits
from normatch.reproduce import estimate
from normatch.reproduce.estimate import Paces
from normatch.reproduce.grid import Planned
from normatch.reproduce.paper import Trial
from normatch.training import Job, checkpoint
from normatch.training.pace import Pace

PACES = {"digits-40": Pace(start=10.0, step=0.5, evaluation=3.0)}


@pytest.mark.parametrize("evaluations", [{"evaluate_every": 120, "epoch": 7}, {"evaluate_every": None, "epoch": 120}])
def test_the_time_left_is_a_start_the_steps_to_go_and_their_evaluations(
    evaluations: dict[str, int | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Paces, "of", lambda self, recipe: PACES[recipe])
    paces = Paces(tmp_path / "pace.json")
    config = Config().replace(steps=1000, **evaluations)
    planned = Planned(Trial("normatch", "cifar10-40"), "digits-40", config, tmp_path)
    assert paces.seconds_left(planned) == 10 + 1000 * 0.5 + 9 * 3
    checkpoint.save(tmp_path / "checkpoint", 500, {})
    assert paces.seconds_left(planned) == 10 + 500 * 0.5 + 5 * 3
    (tmp_path / "result.json").write_text("{}")
    assert paces.seconds_left(planned) == 0


def test_speeds_of_a_recipe_with_other_numbers_are_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "pace", lambda job: Pace(1.0, 2.0, 3.0))
    paces = Paces(tmp_path / "pace.json", device="cpu")
    assert paces.of("digits-40") == Pace(1.0, 2.0, 3.0)
    assert paces.knows("digits-40")
    monkeypatch.setattr(Trial, "config", lambda *_, **__: digits().replace(batch=16))
    assert not paces.knows("digits-40")


@pytest.mark.parametrize("content", ["{", "[1]", "\x80"])
def test_speeds_that_cannot_be_read_are_named(content: str, tmp_path: Path) -> None:
    (tmp_path / "pace.json").write_bytes(content.encode("latin1"))
    with pytest.raises(UserError, match=r"pace\.json cannot be read \(.+\): delete it, and the speeds in it are"):
        Paces(tmp_path / "pace.json", device="cpu").of("digits-40")


def test_two_callers_at_once_measure_once_and_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, measured = tmp_path / "grid" / "pace.json", []

    def slow(job: Job) -> Pace:
        measured.append(job.config.name)
        time.sleep(0.5)  # long enough for the others to find no speed yet
        return Pace(float(len(measured)), 2.0, 3.0)

    monkeypatch.setattr(estimate, "pace", slow)
    monkeypatch.setattr(estimate, "prepare", lambda config: SimpleNamespace(config=config))
    recipes = ["digits-40", "digits-40", "cifar10-40", "svhn-40"]
    with ThreadPoolExecutor(len(recipes)) as callers:
        found = list(callers.map(lambda recipe: Paces(file, device="cpu").of(recipe), recipes))
    assert sorted(measured) == sorted(set(recipes))
    assert found[0] == found[1]
    assert sorted(key.split()[0] for key in json.loads(file.read_text())) == sorted(set(recipes))


def test_minutes_become_whole_thousands_of_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Paces, "of", lambda self, recipe: Pace(start=17.0, step=0.5, evaluation=51.2))
    paces = Paces(tmp_path / "pace.json")
    # 57 seconds of each minute, less 17 to start and 1,024 for 20 evaluations.
    assert paces.steps_in(20, "digits-40") == (20 * 57 - 17 - 1024) * 2
    # With one evaluation in 1,024 steps, which are more than 20, a step takes 0.55.
    assert paces.steps_in(500, "digits-40") == 50 * 1024
    expected = "budget is 1 minutes: a run of digits-40 takes 17 s to start and 1024 s for its evaluations; give more"
    with pytest.raises(UserError, match=expected):
        paces.steps_in(1, "digits-40")
