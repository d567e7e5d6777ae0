"""Pages: whole in themselves, readable by all, and harmless whatever the names in the data."""

import dataclasses
import json
import os
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from normatch.cli import main
from normatch.errors import UserError
from normatch.recipes import own
from normatch.report import numbers_of, write_report
from normatch.report.findings import Evidence, Numbers
from normatch.report.page import balance_of, confused, environment, render_report
from normatch.training import train
from normatch.training.run import Moved
from tests.report.conftest import NASTY, Edited, Runs, look

SECTIONS = {"learning", "pseudo", "balance", "classes", "calibration", "latents", "disputed", "errors"}
MISSING = {
    "normatch": set(),
    "fixmatch": {"latents", "disputed"},
    "supervised": {"pseudo", "balance", "latents", "disputed"},
    "validation": set(),
    "mlp": {"latents"},
    "nothing-held-out": {"classes", "calibration", "errors"},
    "vectors": set(),
}


class Page(HTMLParser):
    """Every element with its attributes, and all text; what must hold of every page that we write is checked."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.words = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []
        self.check(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        self._open += [] if tag in ("meta", "img", "wbr") else [tag]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] not in ("script", "style"):
            self.words += " ".join(data.split()) + " "

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def check(self, text: str) -> None:
        for tag, attributes in self.elements:
            for name in ("src", "href", "srcset", "data", "action", "xlink:href"):
                value = attributes.get(name, "")
                assert value == "" or value.startswith(("data:image/png;base64,", "#")), (tag, value)
        assert not re.search(r"url\(|@import|https?://|[\x00-\x09\x0b-\x1f\x7f]", text)
        assert self.all("link") == []
        assert [s.get("type") for s in self.all("script")] == ["application/json"]
        assert all(image["alt"].strip() for image in self.all("img"))
        assert all(svg["role"] == "img" and svg["aria-label"] for svg in self.all("svg"))
        ids = [attributes["id"] for _, attributes in self.elements if "id" in attributes]
        assert len(ids) == len(set(ids))
        assert {a["href"].removeprefix("#") for a in self.all("a")} <= set(ids)
        assert {s["aria-labelledby"] for s in self.all("section")} <= set(ids)
        assert len(self.all("h1")) == 1
        assert self.all("html")[0]["lang"] == "en"
        assert any(m.get("name") == "viewport" for m in self.all("meta"))
        # But in the command line, where it is what a flag may say.
        assert not re.search(r"\b(nan|inf|None|Undefined)\b", re.sub(r"--[\w.-]+ None", "", self.words))


def numbers_in(text: str) -> Any:
    (found,) = re.findall(r'<script type="application/json" id="numbers">(.*?)</script>', text)
    return json.loads(found)


@pytest.mark.parametrize("kind", MISSING)
def test_the_page_of_each_kind_of_run(kind: str, runs: Runs, numbers: dict[str, Numbers], tmp_path: Path) -> None:
    text = write_report(runs[kind], tmp_path / "page.html", device="cpu").read_text()
    page = Page(text)
    assert numbers_in(text) == json.loads(json.dumps(numbers[kind]))
    shown = {s["id"] for s in page.all("section")}
    assert shown - {"left-out"} == (SECTIONS - MISSING[kind]) | {"repeat", "next"}
    assert ("left-out" in shown) == bool(MISSING[kind])
    assert set(numbers[kind]["left_out"]) == MISSING[kind]
    assert bool(page.all("img")) == (kind != "vectors")
    if kind == "nothing-held-out":  # labels that the run did not use score nothing
        found = numbers[kind]["agreement"]
        assert found["of"] == "unlabelled training images"
        assert [found[f"accuracy_{name}"] for name in ("agree", "disagree", "auxiliary")] == [None] * 3
    if kind == "vectors":  # names from the data are text and never markup
        assert page.all("b") == []
        assert NASTY[0] in page.words
        assert r"x\n\x1b[2Jyy" in page.words
        assert numbers[kind]["classes"] == list(NASTY)
        assert environment().autoescape
    if kind == "mlp":  # a second classifier that is no flow is not called one
        assert "uncertainty of the second head" in page.words
        assert "flow" not in page.words.replace("has no flow", "").replace("The flow's space", "").replace("flow_", "")


def test_the_page_shows_these_numbers(evidence: Evidence) -> None:
    found = look(evidence)
    words = Page(render_report(evidence, found)).words
    low, high = found["interval"]
    for said in (
        f"{found['accuracy']:.1%} of 360 held-out test images",
        f"{low:.1%} to {high:.1%}",
        f"Balanced accuracy {found['balanced_accuracy']:.1%}, macro-F1 {found['macro_f1']:.1%}",
        f"As trained: ECE {found['calibration']['error_before']:.1%}",
        *(f"{entry['precision']:.1%}" for entry in found["per_class"]),
    ):
        assert said in words
    assert words.count(" called ") == np.count_nonzero(found["confusion"])
    assert (found["trained_on"], "whose labels are trained on" in words) == (None, False)


def test_a_flow_that_has_not_learned_agrees_with_nothing(evidence: Any) -> None:
    """To it all classes are equally probable, which is no agreement with a head that predicts the first."""
    logits, auxiliary = 9 * np.eye(10)[np.zeros(360, int)], np.full((360, 10), 0.1)
    found = look(evidence, held_out=dataclasses.replace(evidence.held_out, logits=logits, auxiliary=auxiliary))
    assert (found["agreement"]["agree"], found["agreement"]["accuracy_auxiliary"]) == (0, 0.0)
    assert {(s["auxiliary"], s["auxiliary_confidence"]) for s in found["disputed"]} == {(None, 0.1)}
    assert "flow – 10%" in Page(render_report(evidence, found)).words


def test_of_many_classes_those_that_differ_most_are_shown() -> None:
    pseudo, truth = np.full(40, 10), np.full(40, 10)
    pseudo[[3, 7]], truth[[5, 9]] = (30, 20), (25, 22)
    balance = {"n": 430, "known": 427, "pseudo": pseudo.tolist(), "truth": truth.tolist()}
    drawn: Any = balance_of({"classes": [f"k{k}" for k in range(40)], "balance": balance}, most=4)
    assert drawn["names"] == ["k3", "k5", "k7", "k9"]
    assert drawn["groups"]["pseudo-labels"][1] == pytest.approx([n / 430 for n in (30, 10, 20, 10)])
    assert drawn["groups"]["truth"][1] == pytest.approx([n / 427 for n in (10, 25, 10, 22)])
    assert len(drawn["counts"]) == 41
    found = {"classes": ["ant", "bee", "cat"], "confusion": [[9, 1, 5], [0, 9, 2], [3, 0, 9]]}
    assert confused(found, 3) == [("ant", "cat", 5), ("cat", "ant", 3), ("bee", "cat", 2)]


def test_pictures_are_called_by_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And where only labels that are trained on are known, the page says on what it measures: even if it sees only some
    of the unlabelled pictures, or if all have moved away."""
    rng = np.random.default_rng(0)
    for i in range(30):
        # Markup and an escape sequence; and Latin-1, as old archives have it: no text in UTF-8.
        place = tmp_path / "pets" / ("cat", "dog", "unlabeled")[i % 3] / os.fsdecode(b"\xe4 &<b>\x1b[2J%d.png" % i)
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8)).save(place)
    short = {"steps": 2, "epoch": 1, "batch": 4, "ratio": 2, "device": "cpu"}
    run = train(own(str(tmp_path / "pets")).replace(test_share=0.9, **short), tmp_path / "run")
    page, found = Page(write_report(run.path, device="cpu").read_text()), numbers_of(run.path, device="cpu")
    assert found["errors"]
    for case in found["errors"]:
        name = re.search(r"\d+\.png", case["file"])
        assert name
        assert rf"\udce4 &<b>\x1b[2J{name[0]}" in page.words
    assert found["next"][0]["command"].startswith("normatch suggest ")
    assert found["balance"]["known"] == found["trained_on"] == len(run.split.labelled)
    apology = f"Only the {found['trained_on']} of these images whose labels are trained on have a known class"
    assert apology in page.words
    monkeypatch.setattr("normatch.report.findings.MOST_UNLABELLED", 1)
    assert apology in Page(write_report(run.path, device="cpu").read_text()).words
    (tmp_path / "pets").rename(tmp_path / "moved")
    assert apology in Page(write_report(run.path, device="cpu", force=True).read_text()).words
    argv = ["report", str(run.path), "--data", str(tmp_path / "moved"), "--out", str(tmp_path / "page.html")]
    assert main([*argv, "--device", "cpu"]) == 0
    assert Page((tmp_path / "page.html").read_text()).all("img")


def test_data_that_has_gone_leaves_a_page_without_pictures(
    edited: Edited, numbers: dict[str, Numbers], tmp_path: Path
) -> None:
    run, said, before = edited("normatch", "run", config={"data": "nowhere"}), list[str](), numbers["normatch"]
    page = Page(write_report(run, device="cpu", tell=said.append).read_text())
    assert said[0].startswith("The data could not be read again: data is 'nowhere'")
    after = numbers_of(run, device="cpu")
    assert page.all("img") == []
    assert set(after["left_out"]) == {"pictures", "balance", "disputed", "latents"}
    assert "nowhere" in after["left_out"]["pictures"]
    for name in ("accuracy", "interval", "macro_f1", "confusion", "per_class", "curves"):
        assert before[name] == after[name], name
    assert after["calibration"]["error_before"] == pytest.approx(before["calibration"]["error_before"], abs=1e-5)
    assert after["calibration"]["after"] is None
    # It replaces no page that has pictures, and a place that was given must be right.
    (run / "report.html").write_text("with pictures")
    with pytest.raises(UserError, match=r"report\.html exists already, and a new page would lack the data"):
        write_report(run, device="cpu")
    with pytest.raises(UserError, match=r"^data is 'elsewhere'"):
        numbers_of(run, moved=Moved("elsewhere"), device="cpu")
    assert (run / "report.html").read_text() == "with pictures"
    write_report(run, device="cpu", force=True)
    assert "nowhere" in (run / "report.html").read_text()


def test_warnings_of_the_run_are_shown_and_damage_is_no_lost_data(edited: Edited, tmp_path: Path) -> None:
    run = edited("supervised", "run")
    warning = {"name": "collapse", "step": 8, "message": "one class <takes> all", "remedy": "lower the rate"}
    (run / "warnings.json").write_text(json.dumps([warning]))
    words = Page(write_report(run, device="cpu").read_text()).words
    assert "collapse at step 8: one class <takes> all lower the rate" in words
    for name in ("warnings.json", "split.json"):
        (run / name).write_text("[{")
        said: list[str] = []
        with pytest.raises(UserError, match=rf"{name} cannot be read"):
            write_report(run, device="cpu", force=True, tell=said.append)
        assert said == []


def test_the_verb_writes_into_the_run_or_prints_numbers(
    runs: Runs, numbers: dict[str, Numbers], capsys: pytest.CaptureFixture[str]
) -> None:
    """And ends with what to do next, on the page and in the terminal."""
    run = runs["fixmatch"]
    assert main(["report", str(run), "--device", "cpu"]) == 0
    captured = capsys.readouterr()
    assert captured.out.strip() == str(run / "report.html")
    text = (run / "report.html").read_text()
    page, steps = Page(text), numbers_in(text)["next"]
    assert page.all("section")[-1]["id"] == "next"
    assert [f"next: {step['command']}" for step in steps] == captured.err.splitlines()
    assert [step["command"].split()[1] for step in steps] == ["train", "compare", "predict", "export"]
    assert all(step["command"] in page.words for step in steps)
    without = numbers["nothing-held-out"]["next"]  # no accuracy that could vary
    assert [step["command"].split()[1] for step in without] == ["predict", "export"]
    assert main(["report", str(run), "--device", "cpu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == numbers_in(text)
    shutil.rmtree(run.parent / f"{run.name}-seed1", ignore_errors=True)
    assert main(steps[0]["command"].split()[1:]) == 0
    capsys.readouterr()
    assert main(steps[1]["command"].split()[1:]) == 0
    assert "fixmatch (2 runs)" in capsys.readouterr().out
    assert main(["report", str(run), "--device", "cpu"]) == 0
    assert (run / "report.html").read_text() == text
