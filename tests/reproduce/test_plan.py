"""How many runs a plan trains at a time on a GPU, told what it would measure there."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from normatch.engine.bench import Pace
from normatch.reproduce import plan
from normatch.reproduce.estimate import Paces

GB = 10**9


@pytest.mark.parametrize(
    ("start", "step", "memory", "free", "expected"),
    [
        pytest.param(20.0, 0.01, GB, 80 * GB, 2, id="starting is two thirds of it"),
        pytest.param(20.0, 1.0, GB, 80 * GB, 1, id="training is nearly all of it"),
        pytest.param(20.0, 0.01, GB, 3 * GB, 1, id="two do not fit"),
    ],
)
def test_short_runs_that_fit_go_side_by_side(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, start: float, step: float, memory: int, free: int, expected: int
) -> None:
    monkeypatch.setattr(Paces, "of", lambda self, recipe: Pace(start, step, evaluation=0.0, memory=memory))
    monkeypatch.setattr(
        "normatch.reproduce.plan.Runtime.of", lambda config: SimpleNamespace(device=torch.device("cuda"))
    )
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free, free))
    made = plan.make_plan("table3", budget="1000steps", seeds=(0,), data="digits", device="cpu", out=tmp_path)
    assert made.at_once == expected


def test_one_at_a_time_on_a_processor(tmp_path: Path) -> None:
    made = plan.make_plan("table3", budget="2steps", seeds=(0, 1), data="digits", device="cpu", out=tmp_path)
    assert made.at_once == 1
