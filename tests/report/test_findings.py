"""Findings: the numbers of a report are those of scikit-learn, SciPy and NumPy."""

import csv
import dataclasses
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax
from sklearn import metrics

from normatch.files import read_sealed
from normatch.report import numbers_of
from normatch.report.findings import MOST_POINTS, Numbers, curves_of, gather
from normatch.report.page import render_report
from normatch.training.job import prepare
from normatch.training.run import Run
from tests.report.conftest import Edited, Runs, look
from tests.report.test_page import Page


def test_numbers_equal_scikit_learns(runs: Runs, numbers: dict[str, Numbers]) -> None:
    found = numbers["normatch"]
    with (runs["normatch"] / "predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    truth, guess, classes = [r["truth"] for r in rows], [r["label"] for r in rows], found["classes"]
    assert found["accuracy"] == metrics.accuracy_score(truth, guess)
    assert found["n"] == len(rows) == 360
    assert found["balanced_accuracy"] == pytest.approx(metrics.balanced_accuracy_score(truth, guess))
    assert found["macro_f1"] == pytest.approx(metrics.f1_score(truth, guess, average="macro"))
    assert found["confusion"] == metrics.confusion_matrix(truth, guess, labels=classes).tolist()
    expected = metrics.precision_recall_fscore_support(truth, guess, labels=classes, zero_division=0)
    for name, values in zip(("precision", "recall", "f1", "n"), expected, strict=True):
        assert [entry[name] for entry in found["per_class"]] == pytest.approx(values.tolist())
    wrong = sorted((float(r["probability"]) for r in rows if r["truth"] != r["label"]), reverse=True)
    assert [c["head_confidence"] for c in found["errors"]] == pytest.approx(wrong[:12], abs=1e-5)


def ece(p: Any, labels: Any) -> float:
    """The expected calibration error in 15 equal bins, straight from its definition."""
    bins = np.ceil(p.max(1) * 15)
    right = p.argmax(1) == labels
    return float(sum(abs((right - p.max(1))[bins == b].sum()) for b in range(1, 16)) / len(p))


def test_temperatures_divide_the_logits(runs: Runs) -> None:
    """An overconfident model has a temperature above 1, at which the error shown is that of the softened logits."""
    evidence: Any = gather(runs["validation"], device="cpu")
    as_trained = look(evidence)["calibration"]
    assert as_trained["temperatures"] == pytest.approx((evidence.model.spec.temperature,), rel=1e-3)
    assert as_trained["how"].endswith("predict applies it.")
    held, validation = (dataclasses.replace(p, logits=9 * p.logits) for p in (evidence.held_out, evidence.validation))
    found = look(evidence, held_out=held, validation=validation)["calibration"]
    (temperature,) = found["temperatures"]
    labels = evidence.held_out.dataset.labels
    assert temperature > 2
    assert found["error_after"] == pytest.approx(ece(softmax(held.logits / temperature, 1), labels))
    assert found["error_before"] == pytest.approx(ece(softmax(evidence.held_out.logits, 1), labels), abs=1e-6)
    assert "fitted on 144 validation images" in found["how"]
    crossed = look(evidence, held_out=held, validation=None)["calibration"]
    assert len(crossed["temperatures"]) == 2
    assert min(crossed["temperatures"]) > 2
    assert crossed["error_after"] < ece(softmax(held.logits, 1), labels)
    assert "cross-fitting" in crossed["how"]
    assert sum(b.n for b in crossed["after"]) == 360


def test_latents_are_principal_components(evidence: Any) -> None:
    found, held, flow = look(evidence)["latents"], evidence.held_out, evidence.model.flow
    centred = held.latents - held.latents.mean(0)
    _, singular, axes = np.linalg.svd(centred, full_matrices=False)
    assert found["explained"] == pytest.approx(tuple((singular**2 / (singular**2).sum())[:2]))
    means = flow.mixture.means.detach().double().numpy() - held.latents.mean(0)
    signs = np.sign((np.array(found["points"]) * (centred @ axes[:2].T)).sum(0))
    for ours, theirs in ((found["points"], centred), (found["means"], means)):
        np.testing.assert_allclose(ours, theirs @ axes[:2].T * signs, atol=1e-6)
    centre = np.array(found["points"])[np.array(found["labels"]) == 3].mean(0)
    assert found["centres"][3] == pytest.approx(centre.tolist())


def test_head_and_flow_are_compared_on_the_same_samples(evidence: Any) -> None:
    truth, rng = evidence.held_out.dataset.labels, np.random.default_rng(0)
    logits, other = (5 * np.eye(10)[truth] + 4 * rng.normal(size=(360, 10)) for _ in range(2))
    head, flow = logits.argmax(1), other.argmax(1)
    held = dataclasses.replace(evidence.held_out, logits=logits, auxiliary=softmax(other, 1))
    found, same = look(evidence, held_out=held), head == flow
    assert found["agreement"] == {
        "of": "test images",
        "n": 360,
        "agree": same.sum(),
        "accuracy_agree": metrics.accuracy_score(truth[same], head[same]),
        "accuracy_disagree": metrics.accuracy_score(truth[~same], head[~same]),
        "accuracy_auxiliary": metrics.accuracy_score(truth, flow),
    }
    gaps, samples = np.abs(softmax(logits, 1) - softmax(other, 1)).sum(1), [s["sample"] for s in found["disputed"]]
    assert gaps[samples] == pytest.approx(sorted(gaps[~same], reverse=True)[:12])
    assert [(int(s["head"]), int(s["auxiliary"])) for s in found["disputed"]] == [(head[i], flow[i]) for i in samples]


def test_labels_that_were_not_used_score_nothing(numbers: dict[str, Numbers]) -> None:
    agreement = numbers["nothing-held-out"]["agreement"]
    assert agreement["of"] == "unlabelled training images"
    assert [agreement[f"accuracy_{of}"] for of in ("agree", "disagree", "auxiliary")] == [None] * 3


def test_balance_counts_unlabelled_samples(
    runs: Runs, numbers: dict[str, Numbers], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them, or a random sample of a larger number, which is said."""
    run = Run.open(runs["normatch"])
    found, truth = numbers["normatch"]["balance"], prepare(run.config).corpus.train.labels[run.split.unlabelled]
    assert found["truth"] == np.bincount(truth, minlength=10).tolist()
    assert sum(found["pseudo"]) == found["n"] == found["of"] == found["known"] == len(truth)
    assert numbers["vectors"]["balance"]["known"] < numbers["vectors"]["balance"]["n"]
    monkeypatch.setattr("normatch.report.findings.MOST_UNLABELLED", 60)
    evidence: Any = gather(run.path, device="cpu")
    drawn, few = evidence.unlabelled.samples, look(evidence)
    assert (few["balance"]["n"], few["balance"]["of"]) == (60, len(truth))
    assert few["balance"]["truth"] == np.bincount(evidence.unlabelled.dataset.labels, minlength=10).tolist()
    assert len(np.intersect1d(drawn, run.split.unlabelled)) == 60
    assert drawn.max() > len(truth) / 2
    assert f"predicted for 60 of {len(truth):,} unlabelled images" in Page(render_report(evidence, few)).words


def test_samples_for_validation_are_not_trained_on(edited: Edited, runs: Runs) -> None:
    split = read_sealed(runs["vectors"] / "split.json")
    validation, labelled = split["labelled"][:5], split["labelled"][5:]
    unlabelled = split["unlabelled"] | {"without": validation}
    changed = {"labelled": labelled, "validation": validation, "unlabelled": unlabelled}
    found = numbers_of(edited("vectors", "run", split=changed), device="cpu")
    assert found["trained_on"] == found["balance"]["known"] == len(labelled)


def test_curves_are_the_records_of_the_run(runs: Runs, numbers: dict[str, Numbers]) -> None:
    records, curves = list(Run.open(runs["normatch"]).metrics()), numbers["normatch"]["curves"]
    for name in ("loss", "test/accuracy", "pseudo/accuracy_trusted", "pseudo/confident"):
        assert curves[name] == [[r["step"], r[name]] for r in records if name in r]
    long = curves_of([{"step": i, "loss": float(i), "seldom": None, "test/accuracy": 0.5} for i in range(1, 1001)])
    assert len(long["test/accuracy"]) == 1000, "each as it was measured"
    assert len(long["loss"]) <= MOST_POINTS
    assert long["loss"][0] == (4, 2.5)
    assert long["loss"][-1][0] == 1000
    assert {value for _, value in long["seldom"]} == {None}


def test_data_that_has_changed_is_not_taken_for_the_runs_own(edited: Edited) -> None:
    run = edited("normatch", "run", config={"seed": 5})
    assert "data has changed since" in numbers_of(run, device="cpu")["left_out"]["pictures"]


def test_what_was_predicted_in_training_is_scored_not_what_is_predicted_again(
    edited: Edited, numbers: dict[str, Numbers]
) -> None:
    """Another device may round differently."""
    table = edited("fixmatch", "run") / "predictions.csv"
    with table.open(newline="") as file:
        head, first, *rest = csv.reader(file)
    guess, truth = int(first[1]), int(first[3])
    first[1] = str((guess + 1) % 10)
    with table.open("w", newline="") as file:
        csv.writer(file).writerows([head, first, *rest])
    change = np.subtract(numbers_of(table.parent, device="cpu")["confusion"], numbers["fixmatch"]["confusion"])
    assert change[truth, guess] == -1
    assert np.abs(change).sum() == 2
