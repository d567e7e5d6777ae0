"""Runs of two rounds: a first network suggests some of the labels, and the run is the same whenever it is stopped."""

import dataclasses
import itertools
import json
import shlex
import shutil
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from normatch import recipes
from normatch.autoconfig import plan
from normatch.cli import main
from normatch.config import Config
from normatch.data import UNKNOWN, Corpus
from normatch.errors import UserError
from normatch.evaluate.suggest import suggest
from normatch.files import read_object
from normatch.methods import methods
from normatch.training import Run, train
from normatch.training.job import open_corpus, prepare
from normatch.training.pace import pace
from normatch.training.rounds import CHOSEN, FIRST, SHARE, first_round, labels_of_both
from normatch.training.step import Step


@pytest.fixture(scope="module")
def config(tiny_config: Config) -> Config:
    return tiny_config.replace(labels=30, suggested=10, steps=28, validation=0.1)


@pytest.fixture(scope="module")
def run(config: Config, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(config, tmp_path_factory.mktemp("rounds") / "run")


def test_the_first_network_has_the_other_labels_and_a_seventh_of_the_steps(config: Config, run: Run) -> None:
    first = Run.open(run.path / FIRST)
    assert first.result["steps"] == config.steps // SHARE == 4
    alone = train(first_round(config), run.path.with_name("alone"))
    assert alone.split.to_json() == first.split.to_json()
    for name in ("model.safetensors", "predictions.csv"):
        assert (alone.path / name).read_bytes() == (first.path / name).read_bytes()


def test_the_others_are_its_suggestions(config: Config, run: Run) -> None:
    first = Run.open(run.path / FIRST)
    asked = [row.item for row in suggest(first.path, config.suggested, seed=config.seed, device="cpu").rows]
    assert run.split.labelled.tolist() == sorted([*first.split.labelled.tolist(), *asked])
    assert run.result["labels"] == config.labels
    for name in ("unlabelled", "validation"):
        np.testing.assert_array_equal(getattr(run.split, name), getattr(first.split, name))


def test_its_time_is_part_of_the_runs(run: Run) -> None:
    before = Run.open(run.path / FIRST).result["seconds"]
    assert before < next(run.metrics())["seconds"] <= run.result["seconds"]


@pytest.mark.parametrize("stopped", [False, True])
def test_so_is_the_time_in_which_labels_are_chosen(
    config: Config, stopped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def patiently(*given: Any) -> Any:
        time.sleep(2)
        return labels_of_both(*given)

    step = Step.__call__

    def interrupted(self: Step) -> None:
        if (tmp_path / "run" / FIRST / CHOSEN).exists():
            raise KeyboardInterrupt
        step(self)

    monkeypatch.setattr(sys.modules[train.__module__], "labels_of_both", patiently)
    if stopped:  # before the second network has made a step
        with monkeypatch.context() as patch:
            patch.setattr(Step, "__call__", interrupted)
            with pytest.raises(KeyboardInterrupt):
                train(config, tmp_path / "run")
    run = train(config, tmp_path / "run", resume=stopped)
    first = Run.open(run.path / FIRST)
    assert next(run.metrics())["seconds"] > first.result["seconds"] + 2
    chosen = read_object(first.path / CHOSEN)
    assert chosen["seconds"] > 2
    assert sorted([*chosen["items"], *first.split.labelled.tolist()]) == run.split.labelled.tolist()


def test_the_second_network_is_that_of_a_run_with_these_labels(config: Config, run: Run, tmp_path: Path) -> None:
    again = train(config.replace(suggested=0, labelled=(run.path,)), tmp_path / "named")
    assert again.split.to_json() == run.split.to_json()
    assert (again.path / "model.safetensors").read_bytes() == (run.path / "model.safetensors").read_bytes()


@pytest.mark.parametrize("stopped_at", [0, 2, 4, 5, 20])
def test_stopped_and_resumed_equals_left_alone(
    stopped_at: int, config: Config, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, count, step = tmp_path / "run", 0, Step.__call__

    def stepping(self: Step) -> None:
        nonlocal count
        if count == stopped_at:
            raise KeyboardInterrupt
        count += 1
        step(self)

    with monkeypatch.context() as patch:
        patch.setattr(Step, "__call__", stepping)
        with pytest.raises(KeyboardInterrupt):
            train(config, out)
    assert train(config, out, resume=True).finished
    for name in ("model.safetensors", "predictions.csv", "split.json", f"{FIRST}/model.safetensors"):
        assert (out / name).read_bytes() == (run.path / name).read_bytes()


def stopped_between_the_rounds(config: Config, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(sys.modules[train.__module__], "labels_of_both", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(config, out)


def test_stopped_between_the_rounds(config: Config, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped_between_the_rounds(config, tmp_path / "run", monkeypatch)
    before = (tmp_path / "run" / FIRST / "result.json").read_bytes()
    again = train(config, tmp_path / "run", resume=True)
    assert (again.path / FIRST / "result.json").read_bytes() == before
    assert again.split.to_json() == run.split.to_json()


def test_a_first_network_that_cannot_begin_leaves_nothing(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(self: Step) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(Step, "__call__", failing)
        with pytest.raises(UserError, match="too little memory"):
            train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_second_network_that_cannot_begin_leaves_the_first(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = Step.__call__

    def failing(self: Step) -> None:
        if self.done == 0 and (tmp_path / "run" / FIRST / "result.json").exists():
            raise MemoryError
        step(self)

    with monkeypatch.context() as patch:
        patch.setattr(Step, "__call__", failing)
        with pytest.raises(UserError, match="too little memory"):
            train(config, tmp_path / "run")
    assert train(config, tmp_path / "run", resume=True).finished


def stopped_in_the_first_round(config: Config, out: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def interrupted(self: Step) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Step, "__call__", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(config, out)
    return out


def test_a_run_that_was_stopped_is_not_removed(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = stopped_in_the_first_round(config, tmp_path / "run", monkeypatch)
    shutil.rmtree(out / FIRST)

    def failing(self: Step) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(Step, "__call__", failing)
        with pytest.raises(UserError, match="too little memory"):
            train(config, out, resume=True)
    assert train(config, out, resume=True).finished


def test_half_of_the_labels_are_not_taken_for_all(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = stopped_in_the_first_round(config, tmp_path / "run", monkeypatch)
    said = rf"labelled is {out}, a run whose labels are not all chosen yet: continue it with normatch train .*--resume"
    with pytest.raises(UserError, match=said):
        train(config.replace(labels=None, suggested=0, labelled=(out,)), tmp_path / "other")


def test_the_first_network_is_not_needed_to_resume(config: Config, run: Run, tmp_path: Path) -> None:
    for name in ("late", "early"):
        out = tmp_path / name
        shutil.copytree(run.path, out)
        (out / "result.json").unlink()
        shutil.rmtree(out / FIRST)
        if name == "early":
            (out / "metrics.jsonl").unlink()
            shutil.rmtree(out / "checkpoint")
            (out / "checkpoint").mkdir()
        again = train(config, out, resume=True)
        assert again.split.to_json() == run.split.to_json()
        assert (out / "model.safetensors").read_bytes() == (run.path / "model.safetensors").read_bytes()


def test_data_that_moved_between_the_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    before, after = tmp_path / "before.npz", tmp_path / "after.npz"
    np.savez(before, images=rng.integers(0, 256, (40, 8, 8), dtype=np.uint8), labels=np.arange(40) % 2)
    config = recipes.own(before).replace(
        labels=8, suggested=4, steps=7, epoch=7, batch=4, ratio=1, backbone="small-wide", device="cpu"
    )

    stopped_between_the_rounds(config, tmp_path / "run", monkeypatch)
    before.rename(after)
    assert train(config.replace(data=str(after)), tmp_path / "run", resume=True).result["labels"] == 8


def test_what_the_caller_has_switched_on_changes_no_label(config: Config, run: Run, tmp_path: Path) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        again = train(config, tmp_path / "run")
    assert again.split.to_json() == run.split.to_json()


@pytest.mark.parametrize("method", methods.names())
def test_every_method_has_two_rounds(config: Config, method: str, tmp_path: Path) -> None:
    run = train(config.replace(method=method, include_labelled=False), tmp_path / "run")
    assert run.result["labels"] == 30
    assert not set(run.split.labelled.tolist()) & set(run.split.unlabelled.tolist())


def test_the_pace_counts_both(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("normatch.training.pace._typical", lambda *_: 0.7)
    monkeypatch.setattr("normatch.training.pace.seconds_of", lambda *_: 0.25)
    clock = SimpleNamespace(perf_counter=itertools.count().__next__)
    monkeypatch.setattr("normatch.training.pace.time", clock)
    one, both = (pace(prepare(each)) for each in (config.replace(suggested=0), config))
    assert both.step == pytest.approx(0.8)
    assert both.evaluation == pytest.approx(2 * one.evaluation)
    assert both.choosing == 1.273  # the clock moves by a second, in which 1,000 of 1,273 items are looked at
    assert both.start == 2 * one.start + 1.273
    alone = both.of_one_network()
    assert dataclasses.astuple(alone) == pytest.approx(dataclasses.astuple(one))
    assert one.of_one_network() is one


def unlabelled(corpus: Corpus, count: int) -> Corpus:
    labels = corpus.train.labels.copy()
    labels[:count] = UNKNOWN
    return dataclasses.replace(corpus, train=dataclasses.replace(corpus.train, labels=labels))


@pytest.mark.parametrize(("count", "have"), [(1, "1 training item has"), (3, "3 training items have")])
def test_items_without_labels_cannot_be_looked_up(config: Config, tmp_path: Path, count: int, have: str) -> None:
    corpus = unlabelled(open_corpus(config), count)
    said = rf"suggested is 10, but {have} no label that could be looked up: leave it out, and ask normatch suggest"
    with pytest.raises(UserError, match=said):
        train(config.replace(test_share=0.0), tmp_path / "run", corpus=corpus)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"suggested": -1}, "suggested is -1: give a whole number that is not negative"),
        ({"suggested": 30}, "suggested is 30: give fewer than the labels, which are 30, or 0"),
        ({"labels": None}, "suggested is 10: give labels as well, the number of all"),
        ({"fold": 0}, "suggested is 10: give 0, or neither labelled nor fold: all say which labels are used"),
        (
            {"suggested": 15},
            "suggested is 15, which leaves 15 of 30 labels for the first network: leave it a multiple of the 10 "
            "classes, such as suggested 20",
        ),
        (
            {"suggested": 25},
            "suggested is 25, which leaves 5 of 30 labels for the first network: leave it a multiple of the 10 "
            "classes, such as suggested 20",
        ),
        (
            {"labels": 1430, "suggested": 1420, "validation": 0.0, "include_labelled": False},
            None,
        ),
        (
            {"labels": 1437, "suggested": 1427, "validation": 0.0, "include_labelled": False},
            "suggested is 1427, but the data has 1,427 other items: give fewer",
        ),
        (
            {"labels": 1438, "suggested": 1428, "validation": 0.0},
            "suggested is 1428, but the data has 1,427 other items: give fewer",
        ),
    ],
)
def test_numbers_that_are_wrong(config: Config, changes: dict[str, Any], said: str | None) -> None:
    if said is None:
        assert len(prepare(config.replace(**changes)).split.labelled) == 10
        return
    with pytest.raises(UserError) as caught:
        prepare(config.replace(**changes))
    assert str(caught.value) == said


def test_where_items_are_equal_chance_decides(config: Config, tmp_path: Path) -> None:
    corpus = open_corpus(config)
    inputs = np.zeros_like(np.asarray(corpus.train.inputs))
    corpus = dataclasses.replace(corpus, train=dataclasses.replace(corpus.train, inputs=inputs))
    run = train(config, tmp_path / "run", corpus=corpus)
    assert len(np.unique(run.split.labelled)) == run.result["labels"] == 30


def test_a_run_with_more_labels(config: Config, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "more.csv"
    assert main(["suggest", str(run.path), "--labels", "5", "--out", str(table), "--device", "cpu"]) == 0
    command = shlex.split(capsys.readouterr().out.split("next: normatch ")[1])
    command[command.index("--out") + 1] = str(tmp_path / "more")
    assert main(command) == 0
    more = Run.open(tmp_path / "more")
    assert len(more.split.labelled) == 35
    assert set(run.split.labelled.tolist()) < set(more.split.labelled.tolist())


def test_the_batch_suits_all_labels(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "d.npz", images=rng.integers(0, 256, (300, 8, 8), dtype=np.uint8), labels=np.arange(300) % 2)
    config = recipes.own(tmp_path / "d.npz").replace(labels=70, suggested=60, device="cpu")
    made = plan(config, tmp_path / "run")
    assert "70 labelled items to learn from" in {why for name, _, why in made.chosen if name == "batch"}


def test_on_the_command_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    quick = ["--steps", "14", "--epoch", "7", "--batch", "8", "--ratio", "1", "--device", "cpu"]
    out = str(tmp_path / "run")
    assert main(["train", "digits-40", "--suggested", "20", *quick, "--out", out]) == 0
    said = capfd.readouterr()
    assert "the first network: 20 labels, 2 steps" in said.err
    assert "the second network, with 40 labels" in said.err
    assert json.loads((tmp_path / "run" / FIRST / "config.json").read_text())["labels"] == 20
    assert main(["report", out]) == 0
    assert "40, 20 of them suggested by a first network" in (tmp_path / "run" / "report.html").read_text("utf-8")
    assert main(["train", "--resume", "--out", out]) == 0
    assert "already finished" in capfd.readouterr().out
