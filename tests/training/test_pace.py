"""The pace: how fast a job trains, from a few seconds of it."""

import time
import weakref

import pytest
import torch

from normatch.config import Config
from normatch.data import Dataset, Pool
from normatch.methods.normatch import NorMatch
from normatch.training import prepare
from normatch.training.loop import Loop
from normatch.training.pace import _typical, pace


def test_what_was_measured_does_not_stay_in_memory(monkeypatch: pytest.MonkeyPatch, tiny_config: Config) -> None:
    pools: list[weakref.ref[Pool]] = []

    def made(dataset: Dataset, device: torch.device, on_host: bool) -> Pool:
        pool = Pool(dataset, device)
        pools.append(weakref.ref(pool))
        return pool

    monkeypatch.setattr("normatch.training.loop.make_pool", made)
    assert pace(prepare(tiny_config.replace(device="cpu")), seconds=0.01).step > 0
    assert pools
    assert [pool() for pool in pools] == [None] * len(pools)


@pytest.mark.parametrize(
    ("times", "expected", "counts"),
    [
        # Fast steps: a third of the time each, and the middle of three.
        ([0.01, 0.02, 0.9, 0.03], 0.03, [1, 10, 10, 10]),
        # Slow steps, timed three times.
        ([0.9, 0.7, 0.8], 0.7, [1, 1, 1]),
        # One step held up by something else.
        ([0.9, 0.1, 0.2, 0.1, 0.1, 0.1], 0.1, [1, 1, 1, 1, 1, 1]),
    ],
)
def test_a_step_held_up_does_not_count(times: list[float], expected: float, counts: list[int]) -> None:
    asked: list[int] = []
    left = iter(times)

    def time_of(count: int) -> float:
        asked.append(count)
        return next(left)

    assert _typical(time_of, 0.3) == expected
    assert asked == counts


def test_the_pace_counts_the_beginnings_of_epochs(tiny_config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    began: list[int] = []

    def begin_epoch(self: NorMatch, epoch: int, embed: object) -> None:
        began.append(epoch)
        time.sleep(0.2)

    monkeypatch.setattr(NorMatch, "begin_epoch", begin_epoch)
    measured = pace(prepare(tiny_config.replace(device="cpu")), seconds=0.01)
    assert began == [0, 1]
    assert measured.start > 0.2
    assert measured.evaluation > 0.2


def test_the_pace_counts_whole_evaluations(tiny_config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the loop makes them: the accuracy on labelled items is part of each."""
    timed: list[str] = []
    accuracy = Loop._accuracy

    def noted(self: Loop, items: Pool) -> float:
        timed.append("labelled" if items is self._fitted else "held out")
        return accuracy(self, items)

    monkeypatch.setattr(Loop, "_accuracy", noted)
    assert pace(prepare(tiny_config.replace(device="cpu")), seconds=0.01).evaluation > 0
    assert timed == ["held out", "labelled"]
