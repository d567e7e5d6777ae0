"""How long a run will still take, told how fast a machine is."""

import json
from pathlib import Path

import pytest

from normatch.config import Config
from normatch.engine import checkpoint
from normatch.engine.bench import Pace
from normatch.engine.runtime import Runtime
from normatch.errors import UserError
from normatch.reproduce.estimate import Paces
from normatch.reproduce.grid import Planned
from normatch.reproduce.paper import Trial

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


def test_speeds_that_were_measured_before_memory_was_are_still_known(tmp_path: Path) -> None:
    paces = Paces(tmp_path / "pace.json", device="cpu")
    config = Trial("normatch", "digits-40").config(0, stand_in="digits-40").replace(device="cpu")
    known = {"start": 1.0, "step": 2.0, "evaluation": 3.0}
    (tmp_path / "pace.json").write_text(json.dumps({f"digits-40 on {Runtime.of(config).describe()}": known}))
    assert paces.of("digits-40") == Pace(1.0, 2.0, 3.0, None)


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
