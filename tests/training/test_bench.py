"""The bench: rates and parts of a step, without any data set at hand; and the pace of a job."""

import json
import time
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from normatch.autoconfig import rules
from normatch.cli import main
from normatch.config import Config
from normatch.data import Dataset, Pool
from normatch.methods.normatch import NorMatch
from normatch.recipes import recipes
from normatch.training import Loop, prepare
from normatch.training import bench as bench_module
from normatch.training.bench import _typical, bench, describe, pace

QUICK = ["--batch", "4", "--ratio", "1", "--repeats", "2", "--seconds", "0.01", "--device", "cpu"]


@pytest.mark.parametrize(
    ("name", "change"),
    [("stl10-1000", {"image_size": 16}), ("mini-imagenet-4000", {"fold": 1}), ("digits-40", {"validation": 0.9})],
)
def test_any_recipe_is_timed_without_its_data(name: str, change: dict[str, Any]) -> None:
    """With labels that are a fold or, where most is validation, many."""
    config = recipes.get(name).build().replace(batch=2, ratio=1, device="cpu", backbone="auto", image_size=8)
    report = bench(config.replace(**change), repeats=2, seconds=0.01)
    assert report["steps_per_second"] > 0
    assert len(report["repeats"]) == 2
    assert set(report["parts_ms"]) == {"augmentation", "forward", "backward", "optimisers", "average of weights"}
    assert report["peak_memory_bytes"] is None
    assert report["parts_not_captured"] == []
    assert {"gpu", "cpu", "cores", "threads"} == set(report["machine"])
    assert {"normatch", "torch", "python"} <= set(report["versions"])
    text = describe(report | {"peak_memory_bytes": 10**9, "parts_not_captured": ["forward"], "eager_because": "x y"})
    for words in ("steps/s", "1.00 GB", "(not captured)", "not captured: x y"):
        assert words in text
    assert "(5.0 to 5.0 in 1 repeat)" in describe(report | {"repeats": [5.0]})


def test_the_verb_prints_text_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "digits-40", *QUICK, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["method"] == "normatch"
    assert main(["bench", "digits-40", *QUICK, "--method", "supervised"]) == 0
    assert "supervised on small-wide: " in capsys.readouterr().out
    assert main(["bench", "--seconds", "-1"]) == 2


def test_what_was_measured_does_not_stay_in_memory(monkeypatch: pytest.MonkeyPatch, tiny_config: Config) -> None:
    pools: list[weakref.ref[Pool]] = []

    def made(dataset: Dataset, device: torch.device) -> Pool:
        pool = Pool(dataset, device)
        pools.append(weakref.ref(pool))
        return pool

    monkeypatch.setattr("normatch.training.loop.Pool", made)
    assert pace(prepare(tiny_config.replace(device="cpu")), seconds=0.01).step > 0
    assert pools
    assert [pool() for pool in pools] == [None] * len(pools)


@pytest.mark.parametrize(
    ("times", "expected", "counts"),
    [
        # Fast steps, one held up by something else: a third of the time each, and the middle of three.
        ([0.9, 0.01, 0.02, 0.02, 0.9, 0.03], 0.03, [1, 1, 1, 10, 10, 10]),
        # Slow steps, timed three times.
        ([0.9, 0.7, 0.8], 0.7, [1, 1, 1]),
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


def test_the_backward_pass_is_timed_without_the_forward_pass(
    tiny_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = iter([0.001, 0.002, 0.007, 0.004, 0.005])
    monkeypatch.setattr(bench_module, "_time_part", lambda part, runtime: (next(alone), False))
    milliseconds, _ = bench_module._parts(Loop(prepare(tiny_config)).step)
    expected = {"augmentation": 1, "forward": 2, "backward": 5, "optimisers": 4, "average of weights": 5}
    assert milliseconds == pytest.approx(expected)


def test_own_data_is_timed_as_it_would_be_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "cross_validated", lambda z, y, seed: 0.0)  # noise, of which HOG may see more
    for i in range(20):
        place = tmp_path / "pets" / ("cat", "dog")[i % 2] / f"{i}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.effect_noise((60 + i, 70), 50).save(place)
    expected = {"--scratch": ["small-wide", [1, 32, 32]], "--freeze": ["frozen:efficientnet-lite0", [1, 160, 160]]}
    for flag, found in expected.items():
        assert main(["bench", "--data", str(tmp_path / "pets"), flag, *QUICK, "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert [report["backbone"], report["shape"]] == found
