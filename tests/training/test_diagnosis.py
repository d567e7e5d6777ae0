"""The rules of the diagnosis, on records made by hand, and a run that meets them."""

import dataclasses
import json
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestCentroid
from torch._subclasses.fake_tensor import FakeTensorMode

from normatch import recipes
from normatch.cli import main
from normatch.config import Config
from normatch.data import Dataset
from normatch.errors import UserError
from normatch.estimator import FixMatchClassifier
from normatch.methods import Method, PseudoLabels, Settings
from normatch.methods.fixmatch import FixMatchSettings
from normatch.methods.normatch import NorMatchSettings
from normatch.methods.parts.groups import OptimConfig
from normatch.training import Run, prepare, train
from normatch.training.diagnosis import ONCE_SETTLED, Alarm, Case, Diagnosis, History
from normatch.training.loop import Loop
from normatch.training.metrics import Record, pseudo_label_quality
from normatch.training.progress import Lines, shown
from normatch.training.reference import class_mean_accuracy
from normatch.training.step import Step

CLASSES = tuple("abcdefghij")
CASE = Case(CLASSES, labels=(4,) * 10, steps=1000, epoch=40)
EVEN = [0.1] * 10
GOOD: dict[str, Any] = {
    "loss": 0.5,
    "pseudo/classes": EVEN,
    "pseudo/trusted": 0.8,
    "pseudo/uncertainty_auxiliary": 0.1,
    "labelled/accuracy": 1.0,
}


def alarms(changes: dict[str, Any] | None = None, case: Case = CASE) -> list[Alarm]:
    """Alarms of a run whose records are all alike: good ones, with some changes."""
    diagnosis = Diagnosis(case)
    for step in range(20, 401, 20):
        diagnosis.see(step, GOOD | (changes or {}))
    return diagnosis.alarms


def names(found: list[Alarm]) -> list[str]:
    return [alarm.name for alarm in found]


def only(found: list[Alarm]) -> str:
    """The message of the one alarm there is."""
    (alarm,) = found
    assert alarm.remedy
    return alarm.message


def shares(*common: float) -> list[float]:
    """The first classes' shares; the others divide the rest."""
    rest = (1 - sum(common)) / (10 - len(common))
    return [*common, *[rest] * (10 - len(common))]


def test_a_healthy_run_raises_nothing() -> None:
    assert alarms() == []
    assert alarms({"pseudo/classes": None, "pseudo/trusted": None}) == []
    supervised = Diagnosis(CASE)
    assert supervised.see(500, {"loss": 0.1, "test/accuracy": 0.3}) == []


def test_few_labels_are_seen_before_the_start() -> None:
    case = Case(("cat", "dog"), labels=(3, 9), steps=10, epoch=5)
    assert Diagnosis(case).alarms[0].step == 0
    assert only(Diagnosis(case).alarms) == "class 'cat' has fewer than 4 labels (the least is 3)"
    two = Diagnosis(Case(("cat", "dog"), labels=(3, 1), steps=10, epoch=5)).alarms
    assert only(two) == "2 of 2 classes have fewer than 4 labels (the least is 1)"


def test_a_run_that_ends_before_its_flow_learns_is_seen_before_the_start() -> None:
    short = Case(("cat", "dog"), labels=(4, 4), steps=60, epoch=60, last_start=60)
    told = "a part of the method never learns: its loss begins after 60 steps, the run has 60"
    assert only(Diagnosis(short).alarms) == told
    assert not Diagnosis(dataclasses.replace(short, steps=61)).alarms
    assert not Diagnosis(dataclasses.replace(short, last_start=0)).alarms


@pytest.mark.parametrize("ramp", [5, 0])
def test_the_method_says_when_its_flow_begins_to_learn(tmp_path: Path, ramp: int) -> None:
    config = recipes.digits().replace(steps=2, epoch=2, batch=8, settings=NorMatchSettings(flow_ramp=ramp))
    names = [warning["name"] for warning in train(config, tmp_path / "run").warnings]
    assert names == (["ends-before-ramp"] if ramp else [])


def test_collapse() -> None:
    few = shares(0.6, 0.3, 0.04, 0.03)
    assert only(alarms({"pseudo/classes": few})) == "pseudo-labels name 4 of 10 classes; 60.0% are 'a'"
    half = [0.2] * 5 + [0.0] * 5
    assert names(alarms({"pseudo/classes": half})) == ["collapse"]
    two = Case(("cat", "dog"), labels=(4, 4), steps=1000, epoch=40)
    assert names(alarms({"pseudo/classes": [0.97, 0.03]}, two)) == ["collapse"]


def test_imbalance() -> None:
    assert only(alarms({"pseudo/classes": shares(0.02, 0.25)})) == "25.0% are 'b', 2.0% are 'a'"
    assert alarms({"pseudo/classes": shares(0.03, 0.25)}) == []


SKEWED = Case(("cat", "dog", "owl"), labels=(80, 16, 4), steps=1000, epoch=40)


def test_skewed_labels_are_the_measure_of_pseudo_labels() -> None:
    """80 : 16 : 4 is what the labels promise, and equal shares are not."""
    assert alarms({"pseudo/classes": [0.8, 0.16, 0.04]}, SKEWED) == []
    assert alarms({"pseudo/classes": [0.88, 0.11, 0.01]}, SKEWED) == []
    assert only(alarms({"pseudo/classes": [0.33, 0.33, 0.34]}, SKEWED)) == (
        "34.0% are 'owl', 33.0% are 'cat' (of the labels 4.0% and 80.0%)"
    )
    assert names(alarms({"pseudo/classes": [0.995, 0.004, 0.001]}, SKEWED)) == ["collapse"]
    two_rare = dataclasses.replace(SKEWED, labels=(180, 10, 10))
    assert alarms({"pseudo/classes": [0.94, 0.03, 0.03]}, two_rare) == []
    chance = dataclasses.replace(SKEWED, labels=(6, 2, 5))
    assert names(alarms({"pseudo/classes": [0.85, 0.11, 0.04]}, chance)) == ["few-labels", "imbalance"]


def test_skewed_labels_with_alignment_are_seen_before_the_start() -> None:
    case = dataclasses.replace(SKEWED, labels=(40, 8, 4), alignment=True)
    assert only(Diagnosis(case).alarms) == "labels are 10.0 : 1, but alignment makes all classes equally frequent"
    assert "--settings.no-alignment" in Diagnosis(case).alarms[0].remedy
    assert Diagnosis(dataclasses.replace(case, alignment=False)).alarms == []
    assert Diagnosis(dataclasses.replace(case, labels=(6, 4, 5))).alarms == []


NORMATCH = dataclasses.replace(CASE, alignment=True)
FIXMATCH = dataclasses.replace(CASE, alignment=False, threshold=True)
SUPERVISED = dataclasses.replace(CASE, pseudo_labels=False)
TROUBLES = {
    "collapse": History([{"pseudo/classes": [1.0] + [0.0] * 9}]),
    "imbalance": History([{"pseudo/classes": shares(0.001, 0.25)}]),
    "never-trusted": History([{"pseudo/trusted": 0.01}]),
    "always-trusted": History([{"pseudo/trusted": 0.99}], fitted=0.5),
    "validation-falls": History(validation=[0.9, 0.5, 0.5]),
    "validation-below-reference": History(validation=[0.5]),
}


def remedy(name: str, case: Case) -> str:
    """What a run in this trouble is advised to do."""
    found = ONCE_SETTLED[name](dataclasses.replace(case, validation=400, reference=0.9), TROUBLES[name])
    assert found is not None
    return found[1]


@pytest.mark.parametrize("name", ONCE_SETTLED)
def test_a_remedy_names_what_the_method_has_and_what_is_not_done(name: str) -> None:
    normatch, fixmatch, supervised = (remedy(name, case) for case in (NORMATCH, FIXMATCH, SUPERVISED))
    assert "turn on" not in normatch
    assert "threshold" not in normatch + supervised
    assert "no-alignment" not in fixmatch
    for setting in re.findall(r"--settings\.(?:no-)?([a-z]+)", fixmatch):
        assert hasattr(FixMatchSettings(), setting)
    if name.startswith("validation"):
        assert "unlabelled" not in supervised
        assert "pseudo" not in supervised
        assert "--method supervised" not in supervised


def test_remedies_in_words() -> None:
    assert remedy("collapse", NORMATCH) == "lower --optim.lr, or label more of the missing classes"
    with_muon = dataclasses.replace(NORMATCH, rates=("--optim.muon", "--optim.lr"))
    assert remedy("collapse", with_muon) == "lower --optim.muon, or label more of the missing classes"
    assert remedy("collapse", FIXMATCH).startswith("turn on --settings.alignment, raise --settings.threshold, lower")
    skewed = dataclasses.replace(FIXMATCH, labels=(40, *(4,) * 9))
    assert "turn on" not in remedy("collapse", skewed) + remedy("imbalance", skewed)
    aligned = dataclasses.replace(skewed, alignment=True)
    assert remedy("validation-falls", aligned).startswith(
        "wrong pseudo-labels may be reinforcing themselves: turn off alignment (--settings.no-alignment), lower"
    )


@pytest.mark.parametrize(
    ("method", "alignment", "threshold", "pseudo_labels"),
    [("normatch", True, False, True), ("fixmatch", False, True, True), ("supervised", None, False, False)],
)
def test_a_run_s_case_says_what_its_method_has(
    tiny_config: Config, method: str, alignment: bool | None, threshold: bool, pseudo_labels: bool
) -> None:
    case = Loop(prepare(tiny_config.replace(method=method))).diagnosis.case
    assert (case.alignment, case.threshold, case.pseudo_labels) == (alignment, threshold, pseudo_labels)


def test_the_window_is_an_epoch() -> None:
    """One odd record is not a collapse; an epoch of them is."""
    diagnosis, bad = Diagnosis(CASE), GOOD | {"pseudo/classes": [1.0] + [0.0] * 9}
    for step in range(10, 401, 10):
        assert diagnosis.see(step, bad if step == 300 else GOOD) == []
    found = [alarm for step in range(410, 441, 10) for alarm in diagnosis.see(step, bad)]
    assert [(alarm.name, alarm.step) for alarm in found] == [("imbalance", 420), ("collapse", 440)]


def test_nothing_is_judged_before_the_run_has_settled() -> None:
    bad = {"pseudo/classes": [1.0] + [0.0] * 9}
    assert [alarm.step for alarm in alarms(bad)] == [200], "five epochs"
    short, trial = (Case(CLASSES, labels=(4,) * 10, steps=steps, epoch=40) for steps in (240, 10))
    assert [alarm.step for alarm in alarms(bad, short)] == [120], "half of a short run"
    assert [alarm.step for alarm in alarms(bad, trial)] == [100]


def test_never_trusted() -> None:
    """Consensus is measured against chance, a threshold against nothing."""
    assert "by chance it would be 10.0%" in only(alarms({"pseudo/trusted": 0.12}))
    assert alarms({"pseudo/trusted": 0.13}) == []
    threshold = {"pseudo/uncertainty_auxiliary": None}
    assert only(alarms(threshold | {"pseudo/trusted": 0.01})).startswith("1.0% of the pseudo-labels are confident")
    assert alarms(threshold | {"pseudo/trusted": 0.03}) == []


def test_always_trusted() -> None:
    both = {"pseudo/trusted": 0.99, "labelled/accuracy": 0.6}
    assert only(alarms(both)) == (
        "99.0% of the pseudo-labels are trusted, but only 60% of the labelled items are right"
    )
    assert alarms(both | {"labelled/accuracy": 0.8}) == []
    assert alarms(both | {"pseudo/trusted": 0.9}) == []


@pytest.mark.parametrize(
    ("accuracies", "n", "falls"),
    [
        ([0.5, 0.9, 0.8, 0.8], 1000, True),
        ([0.5, 0.9, 0.8, 0.89], 1000, False),  # it came back
        ([0.5, 0.9, 0.88, 0.87], 1000, False),  # three standard errors are 2.8 points
        ([0.5, 0.9, 0.885, 0.885], 10**6, False),  # less than two points
        ([0.9, 0.8], 1000, False),  # once is not twice
        ([1.0, 7 / 8, 7 / 8], 8, False),  # one item
        ([1.0, 0.9, 0.9], 1000, True),
    ],
)
def test_validation_falls(accuracies: list[float], n: int, falls: bool) -> None:
    diagnosis = Diagnosis(Case(CLASSES, (4,) * 10, steps=1000, epoch=40, validation=n))
    for i, accuracy in enumerate(accuracies):
        diagnosis.see(200 + 10 * i, GOOD | {"validation/accuracy": accuracy})
    assert names(diagnosis.alarms) == (["validation-falls"] if falls else [])


def test_validation_below_reference() -> None:
    case = Case(CLASSES, (4,) * 10, steps=1000, epoch=40, validation=400, reference=0.5)
    below = Diagnosis(case).see(200, GOOD | {"validation/accuracy": 0.44})
    assert only(below).startswith("validation accuracy is 44.0%, but the nearest class mean")
    assert Diagnosis(case).see(200, GOOD | {"validation/accuracy": 0.46}) == []
    few = dataclasses.replace(case, validation=8, reference=1.0)
    assert Diagnosis(few).see(200, GOOD | {"validation/accuracy": 7 / 8}) == []


def test_not_finite_is_seen_at_once() -> None:
    assert names(Diagnosis(CASE).see(1, GOOD | {"loss": None})) == ["not-finite"]


@pytest.mark.parametrize(
    ("settings", "change", "remedy"),
    [
        (NorMatchSettings(), {}, "a lower --optim.lr, or a lower --settings.flow-lr"),
        (NorMatchSettings(flow_lr=0.0), {}, "a lower --optim.lr"),
        (
            NorMatchSettings(),
            {"precision": "bfloat16"},
            "a lower --optim.lr, a lower --settings.flow-lr, or --precision float32",
        ),
        (FixMatchSettings(), {}, "a lower --optim.lr"),
        (FixMatchSettings(), {"optim": OptimConfig(muon=0.01)}, "a lower --optim.muon, or a lower --optim.lr"),
    ],
)
def test_what_makes_values_finite_is_what_the_run_has(
    settings: Settings, change: dict[str, Any], remedy: str, tiny_config: Config
) -> None:
    method = "normatch" if isinstance(settings, NorMatchSettings) else "fixmatch"
    config = tiny_config.replace(method=method, settings=settings, precision="float32").replace(**change)
    (alarm,) = Loop(prepare(config)).diagnosis.see(1, GOOD | {"loss": None})
    assert alarm.remedy == f"start another run with {remedy}"


def test_an_alarm_is_raised_once_and_replay_gives_the_same() -> None:
    lines: list[dict[str, Any]] = [
        GOOD | {"step": 10 * i, "pseudo/trusted": 0.05, "pseudo/classes": shares(0.1 - 0.0025 * i)} for i in range(41)
    ]
    live, replayed = Diagnosis(CASE), Diagnosis(CASE)
    for line in lines:
        live.see(line["step"], line)
    replayed.replay(json.loads(json.dumps(lines)))
    assert names(live.alarms) == ["never-trusted", "imbalance"]
    assert replayed.alarms == live.alarms


@pytest.mark.filterwarnings("ignore:self.within_class_std_dev_")  # some pixels are the same in all digits
def test_the_reference_is_the_nearest_class_mean() -> None:
    config = recipes.digits().replace(validation=0.2)
    job = prepare(config)
    train_set, split = job.corpus.train, job.split
    x = np.asarray(train_set.inputs).reshape(len(train_set), -1).astype(float)
    rival = NearestCentroid().fit(x[split.labelled], train_set.labels[split.labelled])
    expected = rival.score(x[split.validation], train_set.labels[split.validation])
    assert class_mean_accuracy(train_set, split.labelled, split.validation) == pytest.approx(expected)


@pytest.mark.parametrize("unit", [1e-30, 1e20])
def test_the_reference_of_vectors_does_not_depend_on_their_unit(unit: float) -> None:
    """Single precision has no squares of numbers beyond 1e19, nor below 1e-23."""
    labels = np.arange(60) % 3
    x = np.random.default_rng(0).normal(size=(60, 4)) + labels[:, None]
    x[:, 0] *= 100
    one, other = (Dataset((x * u).astype(np.float32), labels, ("a", "b", "c")) for u in (1, unit))
    expected = class_mean_accuracy(one, np.arange(30), np.arange(30, 60))
    assert class_mean_accuracy(other, np.arange(30), np.arange(30, 60)) == expected > 0.5


def test_shares_of_classes_need_no_values() -> None:
    """On tensors without values reading one would raise: nothing here makes the host wait."""
    with FakeTensorMode():
        label, weight = torch.zeros(8, dtype=torch.int64), torch.ones(8)
        curves = pseudo_label_quality(PseudoLabels(label, weight, weight > 0, weight, None), label, classes=5)
    assert all(total.shape == count.shape for total, count in curves.values())
    assert curves["pseudo/classes"][0].shape == (5,)


class Spy(Lines):
    """Keeps the alarms it is shown."""

    def __init__(self) -> None:
        super().__init__("spied on")
        self.alarms: list[Alarm] = []

    def __call__(self, step: int, total: int, record: Record) -> None:
        return

    def warn(self, alarm: Alarm) -> None:
        self.alarms.append(alarm)


def test_a_run_stores_its_warnings_and_shows_them(tiny_config: Config, tmp_path: Path) -> None:
    spy = Spy()
    config = tiny_config.replace(labels=20, method="fixmatch")
    run = train(config, tmp_path / "run", progress=spy)
    assert [warning["name"] for warning in run.warnings] == names(spy.alarms)
    assert names(spy.alarms)[0] == "few-labels"
    assert set(run.warnings[0]) == {"name", "step", "message", "remedy"}
    assert "warnings: few-labels" in run.describe()
    assert train(config.replace(labels=40, steps=2), tmp_path / "other").warnings == []


def first_weight(method: Method) -> torch.Tensor:
    return next(method.parameters()).detach()


def first_variance(method: Method) -> torch.Tensor:
    return next(buffer for name, buffer in method.named_buffers() if name.endswith("running_var"))


@pytest.mark.parametrize(
    ("broken", "log_every", "seen"), [(first_weight, 4, 8), (first_weight, 5, 9), (first_variance, 4, 9)]
)
def test_a_run_that_diverges_stops_and_keeps_its_last_good_checkpoint(
    broken: Callable[[Method], torch.Tensor],
    log_every: int,
    seen: int,
    tiny_config: Config,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Broken in step 7: the loss shows weights at the record of step 8, else the checkpoint of step 9 shows it."""
    config = tiny_config.replace(log_every=log_every, evaluate_every=100)
    spy, out, step = Spy(), tmp_path / "run", Step.__call__

    def break_down(self: Step) -> None:
        step(self)
        if self.done == 7:
            broken(self.method).fill_(math.nan)

    with monkeypatch.context() as patch:
        patch.setattr(Step, "__call__", break_down)
        with pytest.raises(UserError, match=f"stopped at step {seen}: loss, weights, running statistics"):
            train(config, out, progress=spy)
    run = Run.open(out)
    assert not run.finished
    assert [p.name for p in (out / "checkpoint").iterdir()] == ["step-00000006.safetensors"]
    assert [(w["name"], w["step"]) for w in run.warnings] == [("not-finite", seen)]
    assert names(spy.alarms) == ["not-finite"]
    resumed, whole = train(config, out, resume=True), train(config, tmp_path / "whole")
    weights = [(r.path / "model.safetensors").read_bytes() for r in (resumed, whole)]
    assert weights[0] == weights[1]
    assert resumed.warnings == whole.warnings


def test_a_rate_that_is_far_too_high_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quick = ["--steps", "20", "--batch", "8", "--ratio", "2", "--log-every", "5", "--device", "cpu"]
    assert main(["train", "digits-40", *quick, "--optim.lr", "1e30", "--out", str(tmp_path / "run")]) == 2
    *shown, last = capsys.readouterr().err.splitlines()
    assert last.startswith(
        "normatch: training stopped at step 5: loss, weights, running statistics or predictions are not finite"
    )
    assert "lower --optim.lr" in last
    assert "warning: not-finite at step 5" in shown[-1]
    # After one such step the weights are finite still, but nothing that they compute is.
    once = ["--steps", "1", *quick[2:], "--optim.lr", "1e10", "--out", str(tmp_path / "once")]
    assert main(["train", "digits-40", *once]) == 2
    assert "training stopped at step 1" in capsys.readouterr().err
    assert not Run(tmp_path / "once").finished
    with pytest.raises(UserError, match="training stopped at step"):
        FixMatchClassifier(steps=20, batch=8, ratio=2, lr=1e30).fit(np.eye(40), np.arange(40) % 3)


@pytest.mark.parametrize("terminal", [True, False])
def test_alarms_are_shown(terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    with shown("title") as progress:
        progress(2, 2, {"loss": 0.5, "pseudo/trusted": None, "pseudo/classes": [0.5, 0.5], "steps_per_second": 3.0})
        progress.warn(Alarm("collapse", 2, "pseudo-labels name [1] of 10 classes", "try this"))
    text = " ".join(capsys.readouterr().err.split())
    assert "warning: collapse at step 2: pseudo-labels name [1] of 10 classes; try this" in text
    assert "3.0 steps/s" in text
    assert "loss 0.500" in text
