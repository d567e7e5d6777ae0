"""The page of a run: whole in itself, readable by all, and its numbers those of scikit-learn."""

import csv
import dataclasses
import json
import os
import re
import shutil
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.decomposition import PCA
from sklearn.metrics import accuracy_score, confusion_matrix, precision_recall_fscore_support

from normatch.cli import main
from normatch.errors import UserError
from normatch.evaluate.metrics import calibration_error, per_class
from normatch.evaluate.predict import load
from normatch.recipes import own
from normatch.report import numbers_of, write_report
from normatch.report.evidence import gather
from normatch.report.findings import curves_of, examine
from normatch.report.sections.cases import NO_CLASS, disputed
from normatch.report.sections.classes import classes
from normatch.report.sections.curves import pseudo_labels
from normatch.report.thinning import MOST_POINTS
from normatch.training import train
from normatch.training.job import prepare
from normatch.training.run import Moved, Run

KINDS = ["normatch", "fixmatch", "supervised", "validation", "mlp", "nothing-held-out", "vectors"]
VOID = {"meta", "img", "br", "link"}


class Page(HTMLParser):
    """Every element with its attributes; tags that do not match are errors."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] not in ("script", "style"):
            self.words.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def ids(self) -> list[str]:
        return [attributes["id"] or "" for _, attributes in self.elements if "id" in attributes]


def page_of(run: Path, tmp_path: Path) -> Page:
    return Page(write_report(run, tmp_path / "page.html", device="cpu", force=True))


def check_page(path: Path) -> Page:
    """What must hold of every page that we write."""
    page, text = Page(path), path.read_text(encoding="utf-8")
    for tag, attributes in page.elements:
        for name in ("src", "href", "srcset", "data", "action", "xlink:href"):
            value = attributes.get(name) or ""
            assert value == "" or value.startswith(("data:image/png;base64,", "#")), (tag, value)
    assert not re.search(r"url\(|@import|https?://", text)
    assert page.all("link") == []
    assert [s.get("type") for s in page.all("script")] == ["application/json"]
    assert all((image.get("alt") or "").strip() for image in page.all("img"))
    assert all(svg.get("role") == "img" and svg.get("aria-label") for svg in page.all("svg"))
    assert len(page.ids) == len(set(page.ids))
    targets = {(a.get("href") or "").removeprefix("#") for a in page.all("a")}
    assert targets <= set(page.ids)
    labelled = {s.get("aria-labelledby") for s in page.all("section")}
    assert labelled <= set(page.ids)
    assert [h for h, _ in page.elements if h == "h1"] == ["h1"]
    assert page.all("html")[0]["lang"] == "en"
    assert any(m.get("name") == "viewport" for m in page.all("meta"))
    # But in the command line, where it is what a flag may say.
    assert not re.search(r"\b(nan|inf|None)\b", re.sub(r"--[\w.-]+ None", "", " ".join(page.words)))
    return page


def numbers_in(path: Path) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="numbers">(.*?)</script>', path.read_text(encoding="utf-8"))
    assert found
    numbers: dict[str, Any] = json.loads(found[1])
    return numbers


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_needs_nothing_else_and_is_accessible(kind: str, runs: dict[str, Path], tmp_path: Path) -> None:
    path = write_report(runs[kind], tmp_path / "page.html", device="cpu")
    check_page(path)
    assert numbers_in(path) == json.loads(json.dumps(numbers_of(runs[kind], device="cpu")))


def test_what_each_kind_of_run_shows(runs: dict[str, Path], tmp_path: Path) -> None:
    everything = {"learning", "pseudo", "balance", "classes", "calibration", "latents", "disputed", "errors", "repeat"}
    missing = {
        "normatch": set(),
        "fixmatch": {"latents", "disputed"},
        "supervised": {"pseudo", "balance", "latents", "disputed"},
        "mlp": {"latents"},
        "nothing-held-out": {"classes", "calibration", "errors"},
        "vectors": set(),
    }
    for kind, absent in missing.items():
        page = page_of(runs[kind], tmp_path)
        shown = {s["id"] for s in page.all("section")}
        assert shown - {"left-out"} == everything - absent, kind
        assert ("left-out" in shown) == bool(absent), kind
        assert set(numbers_of(runs[kind], device="cpu")["left_out"]) == absent, kind
        assert bool(page.all("img")) == (kind != "vectors"), kind


def test_a_second_classifier_that_is_no_flow_is_not_called_one(runs: dict[str, Path], tmp_path: Path) -> None:
    words = " ".join(page_of(runs["mlp"], tmp_path).words)
    assert "uncertainty of the second head" in words
    assert "flow" not in words.replace("has no flow", "").replace("The flow's space", "").replace("flow_", "")


def test_numbers_equal_scikit_learns(runs: dict[str, Path]) -> None:
    run = runs["normatch"]
    numbers = numbers_of(run, device="cpu")
    with (run / "predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    truth, guess = [r["truth"] for r in rows], [r["label"] for r in rows]
    classes = numbers["classes"]
    assert numbers["accuracy"] == accuracy_score(truth, guess)
    assert numbers["n"] == len(rows) == 360
    assert numbers["confusion"] == confusion_matrix(truth, guess, labels=classes).tolist()
    expected = precision_recall_fscore_support(truth, guess, labels=classes, zero_division=0)
    for name, values in zip(("precision", "recall", "f1", "n"), expected, strict=True):
        assert [entry[name] for entry in numbers["per_class"]] == pytest.approx(values.tolist())
    wrong = sorted((float(r["probability"]), int(r["item"])) for r in rows if r["truth"] != r["label"])[::-1]
    assert [c["head_confidence"] for c in numbers["errors"]] == pytest.approx([p for p, _ in wrong[:12]], abs=1e-5)


def test_the_page_shows_these_numbers(runs: dict[str, Path], tmp_path: Path) -> None:
    page, numbers = page_of(runs["normatch"], tmp_path), numbers_of(runs["normatch"], device="cpu")
    words = " ".join(page.words)
    low, high = numbers["interval"]
    assert f"{numbers['accuracy']:.1%}" in words
    assert f"{low:.1%} to {high:.1%}" in words
    assert f"ECE {numbers['calibration']['error_before']:.1%}" in words
    for entry in numbers["per_class"]:
        assert f"{entry['precision']:.1%}" in words
    tips = [w for w in page.words if " called " in w]
    assert len(tips) == np.count_nonzero(numbers["confusion"])


def test_calibration_is_that_of_the_predictions(runs: dict[str, Path]) -> None:
    run = Run.open(runs["validation"])
    test = prepare(run.config).corpus.test
    assert test is not None
    p = load(run.path).predict_proba(test.inputs)
    found = numbers_of(run.path, device="cpu")["calibration"]
    assert found["error_before"] == pytest.approx(calibration_error(p, test.labels), abs=1e-6)
    assert len(found["temperatures"]) == 1
    assert "fitted on 144 validation items" in found["how"]
    crossed = numbers_of(runs["normatch"], device="cpu")["calibration"]
    assert len(crossed["temperatures"]) == 2
    assert "cross-fitting" in crossed["how"]
    assert sum(b["n"] for b in crossed["after"]) == 360


def test_latents_are_principal_components(runs: dict[str, Path]) -> None:
    evidence = gather(runs["normatch"], device="cpu")
    found = numbers_of(runs["normatch"], device="cpu")["latents"]
    assert evidence.held_out is not None
    assert evidence.held_out.latents is not None
    assert evidence.flow is not None
    pca = PCA(2, svd_solver="full").fit(evidence.held_out.latents)
    assert list(found["explained"]) == pytest.approx(pca.explained_variance_ratio_.tolist())
    for ours, theirs in (
        (found["points"], pca.transform(evidence.held_out.latents)),
        (found["means"], pca.transform(evidence.flow.means)),
    ):
        signs = np.sign((np.array(ours) * theirs).sum(0))
        np.testing.assert_allclose(ours, theirs * signs, atol=1e-6)
    centre = np.array(found["points"])[np.array(found["labels"]) == 3].mean(0)
    assert found["centres"][3] == pytest.approx(centre.tolist())


def test_disputed_items_are_those_named_differently(runs: dict[str, Path]) -> None:
    numbers = numbers_of(runs["normatch"], device="cpu")
    opinions = gather(runs["normatch"], device="cpu").held_out
    assert opinions is not None
    assert opinions.auxiliary is not None
    differ = opinions.logits.argmax(1) != opinions.auxiliary.argmax(1)
    assert numbers["agreement"]["agree"] == int((~differ).sum())
    assert len(numbers["disputed"]) == min(12, differ.sum()) > 0
    gaps = np.abs(opinions.p - opinions.auxiliary).sum(1) / 2
    shown = [case["item"] for case in numbers["disputed"]]
    assert [gaps[i] for i in shown] == sorted(gaps[differ], reverse=True)[: len(shown)]
    assert all(case["head"] != case["auxiliary"] for case in numbers["disputed"])


def test_balance_counts_every_unlabelled_item(runs: dict[str, Path]) -> None:
    run = Run.open(runs["normatch"])
    found = numbers_of(run.path, device="cpu")["balance"]
    truth = prepare(run.config).corpus.train.labels[run.split.unlabelled]
    assert found["truth"] == np.bincount(truth, minlength=10).tolist()
    assert sum(found["pseudo"]) == found["n"] == found["of"] == found["known"] == len(truth)
    vectors = numbers_of(runs["vectors"], device="cpu")["balance"]
    assert vectors["known"] < vectors["n"]


def test_curves_are_the_records_of_the_run(runs: dict[str, Path]) -> None:
    records = list(Run.open(runs["normatch"]).metrics())
    curves = numbers_of(runs["normatch"], device="cpu")["curves"]
    assert curves["loss"] == [[r["step"], r["loss"]] for r in records if "loss" in r]
    assert curves["test/accuracy"] == [[r["step"], r["test/accuracy"]] for r in records if "test/accuracy" in r]


def test_long_curves_are_averaged_and_gaps_stay_gaps() -> None:
    records = [{"step": i, "loss": float(i), "seldom": None} for i in range(1, 1001)]
    curves = curves_of(records)
    assert len(curves["loss"]) <= MOST_POINTS
    assert curves["loss"][0] == (4, 2.5)
    assert curves["loss"][-1][0] == 1000
    assert {value for _, value in curves["seldom"]} == {None}


def test_names_from_the_data_are_text_and_never_markup(runs: dict[str, Path], tmp_path: Path) -> None:
    path = write_report(runs["vectors"], tmp_path / "page.html", device="cpu")
    page = check_page(path)
    assert page.all("b") == []
    assert any("<b>&bold</b>" in words for words in page.words)
    assert numbers_in(path)["classes"][0] == "<b>&bold</b>"


def test_data_that_has_gone_leaves_a_page_without_pictures(runs: dict[str, Path], tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(runs["normatch"], run)
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | {"data": "nowhere"}))
    told: list[str] = []
    page = check_page(write_report(run, device="cpu", tell=told.append))
    write_report(runs["normatch"], tmp_path / "page.html", device="cpu", tell=told.append)
    (said,) = told
    assert said.startswith("The data could not be read again: data is 'nowhere'")
    before, after = numbers_of(runs["normatch"], device="cpu"), numbers_of(run, device="cpu")
    assert page.all("img") == []
    assert set(after["left_out"]) == {"pictures", "balance", "disputed", "latents"}
    assert "nowhere" in after["left_out"]["pictures"]
    for name in ("accuracy", "interval", "confusion", "per_class", "curves"):
        assert before[name] == after[name], name
    gap = after["calibration"]["error_before"] - before["calibration"]["error_before"]
    assert abs(gap) < 1e-5
    assert after["calibration"]["after"] is None


def test_a_page_without_pictures_replaces_none_that_is_there(runs: dict[str, Path], tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(runs["normatch"], run)
    (run / "report.html").write_text("with pictures")
    with pytest.raises(UserError, match=r"^data is 'nowhere'"):
        write_report(run, moved=Moved("nowhere"), device="cpu")
    with pytest.raises(UserError, match=r"^data is 'nowhere'"):
        numbers_of(run, moved=Moved("nowhere"), device="cpu")
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | {"data": "nowhere"}))
    with pytest.raises(
        UserError, match=r"report\.html exists already, and a new page would lack the data, which cannot"
    ):
        write_report(run, device="cpu")
    assert (run / "report.html").read_text() == "with pictures"
    write_report(run, device="cpu", force=True)
    assert "data is &#x27;nowhere&#x27;" in (run / "report.html").read_text()


def test_data_that_has_changed_is_not_taken_for_the_runs_own(runs: dict[str, Path], tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(runs["normatch"], run)
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | {"seed": 5}))
    assert "test items have changed" in numbers_of(run, device="cpu")["left_out"]["pictures"]


def test_warnings_of_the_run_are_shown(runs: dict[str, Path], tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(runs["supervised"], run)
    warning = {"name": "collapse", "step": 8, "message": "one class <takes> all", "remedy": "lower the rate"}
    (run / "warnings.json").write_text(json.dumps([warning]))
    words = " ".join(check_page(write_report(run, device="cpu")).words)
    for part in ("collapse", "step 8", "one class <takes> all", "lower the rate"):
        assert part in words
    (run / "split.json").write_text("[]")
    told: list[str] = []
    with pytest.raises(UserError, match=r"split\.json cannot be read"):
        write_report(run, device="cpu", force=True, tell=told.append)
    assert told == [], "a damaged run is not lost data"
    shutil.copy(runs["supervised"] / "split.json", run)
    (run / "warnings.json").write_text("[{")
    with pytest.raises(UserError, match=r"warnings\.json cannot be read"):
        write_report(run, device="cpu")


def test_wrong_input_is_one_line_and_writes_nothing(
    runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unfinished = tmp_path / "unfinished"
    shutil.copytree(runs["supervised"], unfinished)
    (unfinished / "result.json").unlink()
    cases = {
        "is not finished": [str(unfinished)],
        "is no run": [str(tmp_path)],
        "nowhere is no run": [str(tmp_path / "nowhere")],
        "is a folder": [str(runs["supervised"]), "--out", str(tmp_path)],
        "is no folder": [str(runs["supervised"]), "--out", str(tmp_path / "nowhere" / "page.html")],
    }
    for message, argv in cases.items():
        assert main(["report", *argv]) == 2
        captured = capsys.readouterr()
        assert message in captured.err
        assert (captured.err.count("\n"), captured.out) == (1, "")
    assert [path.name for path in tmp_path.iterdir()] == ["unfinished"]
    assert not (unfinished / "report.html").exists()


def test_the_verb_writes_into_the_run_or_prints_numbers(
    runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run = runs["fixmatch"]
    assert main(["report", str(run), "--device", "cpu"]) == 0
    assert capsys.readouterr().out.strip() == str(run / "report.html")
    first = (run / "report.html").read_bytes()
    assert main(["report", str(run), "--device", "cpu"]) == 0
    assert (run / "report.html").read_bytes() == first
    capsys.readouterr()
    assert main(["report", str(run), "--device", "cpu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == numbers_in(run / "report.html")


def test_accuracies_are_told_apart_by_whether_head_and_flow_agree(runs: dict[str, Path]) -> None:
    evidence = gather(runs["normatch"], device="cpu")
    assert evidence.held_out is not None
    truth, rng = evidence.held_out.dataset.labels, np.random.default_rng(0)
    head, other = (np.where(rng.uniform(size=360) < p, truth, rng.integers(0, 10, 360)) for p in (0.5, 0.8))
    opinions = dataclasses.replace(evidence.held_out, logits=9 * np.eye(10)[head], auxiliary=np.eye(10)[other])
    found = examine(dataclasses.replace(evidence, held_out=opinions)).agreement
    assert found is not None
    agree = head == other
    assert (found.n, found.agree) == (360, agree.sum())
    assert found.accuracy_agree == accuracy_score(truth[agree], head[agree])
    assert found.accuracy_disagree == accuracy_score(truth[~agree], head[~agree])
    assert found.accuracy_auxiliary == accuracy_score(truth, other)


def test_a_flow_that_has_not_learnt_agrees_with_nothing(runs: dict[str, Path]) -> None:
    """It finds all classes equally likely, which is no agreement with a head that says the first."""
    evidence = gather(runs["normatch"], device="cpu")
    assert evidence.held_out is not None
    opinions = dataclasses.replace(
        evidence.held_out, logits=9 * np.eye(10)[np.zeros(360, int)], auxiliary=np.full((360, 10), 0.1)
    )
    findings = examine(dataclasses.replace(evidence, held_out=opinions))
    assert findings.agreement is not None
    assert (findings.agreement.agree, findings.agreement.accuracy_auxiliary) == (0, 0.0)
    assert findings.disputed is not None
    assert {(case.auxiliary, case.auxiliary_confidence) for case in findings.disputed} == {(None, 0.1)}
    shown = disputed(findings, {})
    assert shown is not None
    assert "name the same class for 0 of 360" in shown
    assert f">{NO_CLASS}</td>" in shown


def test_labels_that_the_run_did_not_use_score_no_agreement(runs: dict[str, Path]) -> None:
    found = numbers_of(runs["nothing-held-out"], device="cpu")["agreement"]
    assert found["of"] == "unlabelled training items"
    assert [found[f"accuracy_{name}"] for name in ("agree", "disagree", "auxiliary")] == [None] * 3


def test_unlabelled_items_are_drawn_from_all_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = np.repeat(np.arange(3), 100)
    np.savez(tmp_path / "sorted.npz", x=np.random.default_rng(0).normal(size=(300, 4)), y=labels)
    config = own(str(tmp_path / "sorted.npz")).replace(steps=2, epoch=1, batch=6, ratio=2, labels=30, device="cpu")
    run = train(config, tmp_path / "run")
    monkeypatch.setattr("normatch.report.evidence.UNLABELLED_SAMPLE", 20)
    found = gather(run.path, device="cpu").unlabelled
    assert found is not None
    drawn = found.items.tolist()
    assert len(set(drawn)) == 20
    assert set(drawn) <= set(run.split.unlabelled.tolist())
    assert drawn != run.split.unlabelled[:20].tolist()
    assert set(labels[drawn]) == {0, 1, 2}


def test_pictures_are_called_by_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And where only labels that are learnt are known, the page says on what it measures: even if it sees only some of
    the unlabelled pictures, or if all have moved away."""
    rng = np.random.default_rng(0)
    for i in range(30):
        # Names in Latin-1, as old archives have them: no text in UTF-8.
        place = tmp_path / "pets" / ("cat", "dog", "unlabeled")[i % 3] / os.fsdecode(b"\xe4 &%d.png" % i)
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8)).save(place)
    short = {"steps": 2, "epoch": 1, "batch": 4, "ratio": 2, "device": "cpu"}
    run = train(own(str(tmp_path / "pets")).replace(test_share=0.9, **short), tmp_path / "run")
    page, numbers = check_page(write_report(run.path, device="cpu")), numbers_of(run.path, device="cpu")
    with (run.path / "predictions.csv").open(newline="", encoding="utf-8") as file:
        tested = list(csv.DictReader(file))
    assert numbers["errors"]
    for case in numbers["errors"]:
        shown = case["file"].encode("utf-8", "backslashreplace").decode()
        assert shown == tested[case["item"]]["file"]
        assert shown in page.words
    assert numbers["balance"]["known"] == numbers["learnt"] == len(run.split.labelled)
    apology = f"Only the {numbers['learnt']} of these images whose labels are trained on have a known class"
    assert any(apology in said for said in page.words)
    monkeypatch.setattr("normatch.report.evidence.UNLABELLED_SAMPLE", 1)
    assert any(apology in said for said in check_page(write_report(run.path, device="cpu")).words)
    (tmp_path / "pets").rename(tmp_path / "moved")
    assert any(apology in said for said in check_page(write_report(run.path, device="cpu", force=True)).words)


def test_truth_that_is_not_learnt_needs_no_apology(runs: dict[str, Path], tmp_path: Path) -> None:
    assert numbers_of(runs["normatch"], device="cpu")["learnt"] is None
    page = check_page(write_report(runs["normatch"], tmp_path / "page.html", device="cpu"))
    assert not any("whose labels are trained on" in said for said in page.words)


def test_what_was_predicted_in_training_is_scored_not_what_is_predicted_again(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    """Another device may round differently."""
    copy = tmp_path / "run"
    shutil.copytree(runs["fixmatch"], copy)
    before = np.array(numbers_of(copy, device="cpu")["confusion"])
    with (copy / "predictions.csv").open(newline="") as file:
        head, first, *rest = csv.reader(file)
    guess, truth = int(first[1]), int(first[3])
    first[1] = str((guess + 1) % 10)
    with (copy / "predictions.csv").open("w", newline="") as file:
        csv.writer(file).writerows([head, first, *rest])
    after = np.array(numbers_of(copy, device="cpu")["confusion"])
    assert (after - before)[truth, guess] == -1
    assert np.abs(after - before).sum() == 2


def test_only_a_method_with_a_threshold_is_said_to_have_one(runs: dict[str, Path]) -> None:
    found = examine(gather(runs["fixmatch"], device="cpu"))
    assert "reaches the method's threshold" in unescape(str(pseudo_labels(found)))
    settings = {name: value for name, value in found.config["settings"].items() if name != "threshold"}
    other = dataclasses.replace(found, method="mymethod", config=found.config | {"settings": settings})
    assert "threshold" not in str(pseudo_labels(other))
    assert "a rule of mymethod" in str(pseudo_labels(other))


def test_the_pairs_most_often_confused_come_first(runs: dict[str, Path]) -> None:
    names, counts = ("ant", "bee", "cat"), [[9, 1, 5], [0, 9, 2], [3, 0, 9]]
    found = dataclasses.replace(
        examine(gather(runs["normatch"], device="cpu")),
        classes=names,
        confusion=counts,
        per_class=per_class(np.array(counts), names),
    )
    said = "truth → answer (times): ant → cat (5), cat → ant (3), bee → cat (2), ant → bee (1)."
    assert said in str(classes(found))
