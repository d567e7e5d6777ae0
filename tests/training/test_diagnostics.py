"""The table of warnings, on records made by hand, and runs that meet them."""

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

from normatch import recipes
from normatch.config import Config
from normatch.data import Dataset
from normatch.errors import UserError
from normatch.methods import Method
from normatch.methods.normatch import NorMatchSettings
from normatch.methods.parts.groups import OptimConfig
from normatch.training import Run, prepare, train
from normatch.training.baselines import Score
from normatch.training.diagnostics import RULES, Alarm, Case, Diagnosis, class_mean_accuracy
from normatch.training.loop import Loop
from normatch.training.metrics import Record
from normatch.training.progress import Lines, shown
from normatch.training.step import Step

CLASSES = tuple("abcdefghij")
CASE = Case(CLASSES, labels=(4,) * 10, steps=1000, epoch=40)
TWO = Case(("cat", "dog"), labels=(4, 4), steps=1000, epoch=40)
SKEWED = Case(("cat", "dog", "owl"), labels=(80, 16, 4), steps=1000, epoch=40)
VALIDATED = dataclasses.replace(CASE, validation=400, reference=0.5)
GOOD: dict[str, Any] = {
    "loss": 0.5,
    "pseudo/classes": [0.1] * 10,
    "pseudo/trusted": 0.8,
    "pseudo/uncertainty_auxiliary": 0.1,
    "labelled/accuracy": 1.0,
}
THRESHOLD = {"pseudo/uncertainty_auxiliary": None}


def alarms(changes: dict[str, Any] | None = None, case: Case = CASE) -> list[Alarm]:
    """Warnings of a run whose records are all alike: good ones, with some changes. A list of accuracies is one each."""
    diagnosis = Diagnosis(case)
    for i, step in enumerate(range(20, 401, 20)):
        record = GOOD | (changes or {})
        if isinstance(accuracies := record.pop("validation", None), list):
            # From the step on at which the run is judged.
            at = i - 9
            record |= {"validation/accuracy": accuracies[at]} if 0 <= at < len(accuracies) else {}
        diagnosis.see(step, record)
    return diagnosis.alarms


def names(found: list[Alarm]) -> list[str]:
    return [alarm.name for alarm in found]


def shares(*common: float) -> list[float]:
    """The first classes' shares; the others divide the rest."""
    rest = (1 - sum(common)) / (10 - len(common))
    return [*common, *[rest] * (10 - len(common))]


def changed(case: Case, **changes: Any) -> Case:
    return dataclasses.replace(case, **changes)


HOLDS: list[tuple[str, Case, dict[str, Any], str]] = [
    ("few-labels", changed(TWO, labels=(3, 9)), {}, "class 'cat' has fewer than 4 labels (the least is 3)"),
    ("few-labels", changed(TWO, labels=(3, 1)), {}, "2 of 2 classes have fewer than 4 labels (the least is 1)"),
    ("skewed-labels", changed(SKEWED, labels=(40, 8, 4), alignment=True), {}, "labels are 10.0 : 1, but alignment"),
    ("ends-before-ramp", changed(CASE, steps=60, last_start=60), {}, "its loss begins after 60 steps, the run has 60"),
    ("not-finite", CASE, {"loss": None}, "not finite"),
    ("not-finite", CASE, {"test/accuracy": None}, "not finite"),
    ("collapse", CASE, {"pseudo/classes": shares(0.6, 0.3, 0.04, 0.03)}, "name 4 of 10 classes; 60.0% are 'a'"),
    ("collapse", CASE, {"pseudo/classes": [0.2] * 5 + [0.0] * 5}, "name 5 of 10"),
    ("collapse", TWO, {"pseudo/classes": [0.97, 0.03]}, "name 1 of 2"),
    ("collapse", SKEWED, {"pseudo/classes": [0.995, 0.004, 0.001]}, "name 1 of 3"),
    ("imbalance", CASE, {"pseudo/classes": shares(0.02, 0.25)}, "25.0% are 'b', 2.0% are 'a'"),
    ("imbalance", SKEWED, {"pseudo/classes": [0.33, 0.33, 0.34]}, "'cat' (of the labels 4.0% and 80.0%)"),
    ("never-trusted", CASE, {"pseudo/trusted": 0.12}, "agree on 12.0% of the pseudo-labels, random ones"),
    ("never-trusted", CASE, THRESHOLD | {"pseudo/trusted": 0.01}, "1.0% of the pseudo-labels are confident"),
    (
        "always-trusted",
        CASE,
        {"pseudo/trusted": 0.99, "labelled/accuracy": 0.6},
        "but only 60% of the labelled",
    ),
    ("validation-falls", changed(CASE, validation=1000), {"validation": [0.5, 0.9, 0.8, 0.8]}, "from 90.0% to 80.0%"),
    ("validation-falls", changed(CASE, validation=1000), {"validation": [1.0, 0.9, 0.9]}, "from 100.0% to 90.0%"),
    ("validation-below-reference", VALIDATED, {"validation": [0.44]}, "accuracy is 44.0%, but the nearest class mean"),
]
"""Rule, run, changes of its records, and a part of what is said."""

HOLDS_NOT: list[tuple[str, Case, dict[str, Any]]] = [
    ("few-labels", CASE, {}),
    ("skewed-labels", changed(SKEWED, alignment=False), {"pseudo/classes": [0.8, 0.16, 0.04]}),
    ("skewed-labels", changed(SKEWED, labels=(6, 4, 5), alignment=True), {"pseudo/classes": [0.4, 0.3, 0.3]}),
    ("ends-before-ramp", changed(CASE, steps=61, last_start=60), {}),
    ("ends-before-ramp", changed(CASE, steps=60, last_start=0), {}),
    ("not-finite", CASE, {"pseudo/classes": None, "pseudo/trusted": None}),
    ("collapse", CASE, {"pseudo/classes": [0.16] * 6 + [0.01] * 4}),  # but an imbalance
    ("imbalance", CASE, {"pseudo/classes": shares(0.03, 0.25)}),
    ("imbalance", SKEWED, {"pseudo/classes": [0.88, 0.11, 0.01]}),
    ("imbalance", changed(SKEWED, labels=(180, 10, 10)), {"pseudo/classes": [0.94, 0.03, 0.03]}),
    ("never-trusted", CASE, {"pseudo/trusted": 0.13}),
    ("never-trusted", CASE, THRESHOLD | {"pseudo/trusted": 0.03}),
    ("always-trusted", CASE, {"pseudo/trusted": 0.99, "labelled/accuracy": 0.8}),
    ("always-trusted", CASE, {"pseudo/trusted": 0.9, "labelled/accuracy": 0.6}),
    ("validation-falls", changed(CASE, validation=1000), {"validation": [0.5, 0.9, 0.8, 0.89]}),  # it came back
    ("validation-falls", changed(CASE, validation=1000), {"validation": [0.5, 0.9, 0.88, 0.87]}),  # 3 errors: 2.8
    ("validation-falls", changed(CASE, validation=10**6), {"validation": [0.5, 0.9, 0.885, 0.885]}),  # under 2 points
    ("validation-falls", changed(CASE, validation=1000), {"validation": [0.9, 0.8]}),  # once is not twice
    ("validation-falls", changed(CASE, validation=8), {"validation": [1.0, 7 / 8, 7 / 8]}),  # one sample
    ("validation-below-reference", VALIDATED, {"validation": [0.46]}),
    ("validation-below-reference", changed(VALIDATED, validation=8, reference=1.0), {"validation": [7 / 8]}),
]
"""Rule, run and changes of its records that only just do not meet it."""


@pytest.mark.parametrize(("name", "case", "changes", "said"), HOLDS)
def test_what_meets_a_rule_is_warned_of(name: str, case: Case, changes: dict[str, Any], said: str) -> None:
    if len(case.classes) == 2 and "pseudo/classes" not in changes:
        changes = changes | {"pseudo/classes": None}
    if name == "skewed-labels":
        changes = changes | {"pseudo/classes": None}
    (alarm,) = alarms(changes, case)
    assert alarm.name == name
    assert said in alarm.message
    assert alarm.remedy
    judged = {rule.name: rule.judged for rule in RULES}[name]
    first = {"at the start": 0, "at every record": 20, "once settled": 200}[judged]
    assert alarm.step == first or name == "validation-falls"


@pytest.mark.parametrize(("name", "case", "changes"), HOLDS_NOT)
def test_what_only_just_does_not_is_not(name: str, case: Case, changes: dict[str, Any]) -> None:
    assert name not in names(alarms(changes, case))
    assert alarms() == []


NORMATCH = changed(CASE, alignment=True)
FIXMATCH = changed(CASE, alignment=False, threshold=True)
SUPERVISED = changed(CASE, pseudo_labels=False)
TROUBLES: dict[str, dict[str, Any]] = {
    "collapse": {"pseudo/classes": [1.0] + [0.0] * 9},
    "imbalance": {"pseudo/classes": shares(0.001, 0.25)},
    "never-trusted": THRESHOLD | {"pseudo/trusted": 0.01},
    "always-trusted": {"pseudo/trusted": 0.99, "labelled/accuracy": 0.5},
    "validation-falls": {"validation": [0.9, 0.5, 0.5]},
    "validation-below-reference": {"validation": [0.5]},
}


def remedy(name: str, case: Case) -> str:
    """What a run in this trouble is advised to do."""
    found = alarms(TROUBLES[name], changed(case, validation=400, reference=0.9))
    (advice,) = [alarm.remedy for alarm in found if alarm.name == name]
    return advice


def test_remedies_name_what_the_method_has_and_what_is_not_done() -> None:
    assert remedy("collapse", NORMATCH) == "lower --optim.lr, or label more samples of the missing classes"
    with_muon = changed(NORMATCH, rates=("--optim.muon", "--optim.lr"))
    assert remedy("collapse", with_muon) == "lower --optim.muon, or label more samples of the missing classes"
    assert remedy("collapse", FIXMATCH).startswith("turn on --settings.alignment, raise --settings.threshold, lower")
    assert "if the samples themselves are balanced, turn on --settings.alignment" in remedy("imbalance", FIXMATCH)
    assert remedy("imbalance", NORMATCH).startswith("if the samples themselves are imbalanced, turn off alignment")
    assert "lower --settings.threshold" in remedy("never-trusted", FIXMATCH)
    skewed = changed(FIXMATCH, labels=(40, *(4,) * 9))
    assert "turn on" not in remedy("collapse", skewed) + remedy("imbalance", skewed)
    assert remedy("validation-falls", changed(skewed, alignment=True)).startswith(
        "wrong pseudo-labels may be reinforcing themselves: turn off alignment (--settings.no-alignment), lower"
    )
    for name in ("validation-falls", "validation-below-reference"):
        assert not re.search("unlabelled|pseudo|--method supervised", remedy(name, SUPERVISED))


LOWER = "a lower --optim.lr"
NO_FLOW = {"settings": NorMatchSettings(flow_lr=0.0, flow_ramp=0)}


@pytest.mark.parametrize(
    ("method", "change", "facts", "remedy"),
    [
        ("normatch", {}, (True, False, True, 4), f"{LOWER}, or a lower --settings.flow-lr"),
        ("normatch", NO_FLOW | {"precision": "bfloat16"}, (True, False, True, 0), f"{LOWER}, or --precision float32"),
        ("fixmatch", {"optim": OptimConfig(muon=0.01)}, (False, True, True, 0), f"a lower --optim.muon, or {LOWER}"),
        ("supervised", {}, (None, False, False, 0), LOWER),
    ],
)
def test_the_case_of_a_run_says_what_it_has(
    method: str, change: dict[str, Any], facts: tuple[bool | None, ...], remedy: str, tiny_config: Config
) -> None:
    """With the end of the ramp of NorMatch's flow, of an epoch."""
    diagnosis = Loop(prepare(tiny_config.replace(method=method).replace(**change))).diagnosis
    case = diagnosis.case
    assert (case.alignment, case.threshold, case.pseudo_labels, case.last_start) == facts
    (alarm,) = diagnosis.see(1, GOOD | {"loss": None})
    assert alarm.remedy == f"start another run with {remedy}"


def test_the_window_is_an_epoch() -> None:
    """One odd record is not a collapse; an epoch of them is."""
    diagnosis, bad = Diagnosis(CASE), GOOD | {"pseudo/classes": [1.0] + [0.0] * 9}
    for step in range(10, 401, 10):
        assert diagnosis.see(step, bad if step == 300 else GOOD) == []
    found = [alarm for step in range(410, 441, 10) for alarm in diagnosis.see(step, bad)]
    assert [(alarm.name, alarm.step) for alarm in found] == [("imbalance", 420), ("collapse", 440)]


@pytest.mark.parametrize(("steps", "first"), [(1000, 200), (240, 120), (10, 100)])
def test_nothing_is_judged_before_the_run_has_settled(steps: int, first: int) -> None:
    """After five epochs or half of a short run, but never before step 100."""
    found = alarms({"pseudo/classes": [1.0] + [0.0] * 9}, changed(CASE, steps=steps))
    assert [alarm.step for alarm in found] == [first]


def test_a_warning_is_given_once_and_replay_gives_the_same() -> None:
    lines: list[dict[str, Any]] = [
        GOOD | {"step": 10 * i, "pseudo/trusted": 0.05, "pseudo/classes": shares(0.1 - 0.0025 * i)} for i in range(41)
    ]
    live, replayed = Diagnosis(CASE), Diagnosis(CASE)
    for line in lines:
        live.see(line["step"], line)
    for line in json.loads(json.dumps(lines)):
        replayed.see(line["step"], line)
    assert names(live.alarms) == ["never-trusted", "imbalance"]
    assert replayed.alarms == live.alarms


@pytest.mark.filterwarnings("ignore:self.within_class_std_dev_")  # some pixels are the same in all digits
def test_the_reference_is_the_nearest_class_mean() -> None:
    job = prepare(recipes.digits().replace(validation=0.2))
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


@pytest.mark.parametrize(("broken", "log_every", "seen"), [(first_weight, 4, 8), (first_variance, 5, 9)])
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


def test_of_better_baselines_the_stored_one_is_named() -> None:
    def ended(*scores: tuple[str, float, float, bool]) -> list[str]:
        found = [Score(name, "HOG", accuracy, 50, 0.7, p, 1.0, stored) for name, accuracy, p, stored in scores]
        return [f"{alarm.message}; {alarm.remedy}" for alarm in Diagnosis(CASE).end(1000, found)]

    stored, other = ("logistic regression", 0.8, 0.01, True), ("label spreading", 0.9, 0.01, False)
    (said,) = ended(other, stored)
    assert said.startswith("logistic regression on HOG has 80.0% of 50 held-out samples right, this run 70.0%")
    assert "--with baseline" in said
    (said,) = ended(other)
    assert "use scikit-learn's label spreading" in said
    assert ended(("worse", 0.5, 0.01, True), ("no clear difference", 0.8, 0.06, True)) == []
