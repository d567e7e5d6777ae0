"""Runs side by side."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest

from normatch.augment import AugmentConfig
from normatch.cli import main
from normatch.config import Config
from normatch.errors import UserError
from normatch.report import compare, describe, write_comparison
from normatch.report.comparison import Match, verdict
from normatch.training import train
from tests.report.test_report import check_page


def correct(run: Path) -> list[bool]:
    with (run / "predictions.csv").open(newline="") as file:
        return [row["label"] == row["truth"] for row in csv.DictReader(file)]


def test_pairs_on_the_same_items(runs: dict[str, Path]) -> None:
    found = compare([runs["supervised"], runs["normatch"]])
    (match,) = found.matches
    first, second = correct(runs["supervised"]), correct(runs["normatch"])
    assert match.n == len(first) == 360
    assert match.won == sum(a and not b for a, b in zip(first, second, strict=True))
    assert match.lost == sum(b and not a for a, b in zip(first, second, strict=True))
    assert match.p == pytest.approx(binomtest(match.won, match.won + match.lost).pvalue)
    assert found.runs[0].accuracy == sum(first) / 360


def test_predictions_that_end_early_are_not_compared(runs: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(runs["normatch"], tmp_path / "short")
    table = tmp_path / "short" / "predictions.csv"
    table.write_text("".join(table.read_text().splitlines(keepends=True)[:50]))
    with pytest.raises(UserError, match=r"has 49 test items whose class is known, but result\.json counts 360"):
        compare([runs["supervised"], tmp_path / "short"])


def test_a_run_that_lost_its_predictions_is_said_to_have(runs: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(runs["normatch"], tmp_path / "lost")
    (tmp_path / "lost" / "predictions.csv").unlink()
    (match,) = compare([runs["supervised"], tmp_path / "lost"]).matches
    assert match.why_not == "lost has no predictions.csv"


def test_only_settings_that_differ_are_listed(runs: dict[str, Path]) -> None:
    found = compare([runs["normatch"], runs["validation"]])
    assert found.settings == {"validation": [0.0, 0.1]}
    methods = compare([runs["normatch"], runs["supervised"]])
    assert methods.settings == {"method": ["normatch", "supervised"]}


def test_the_labels_of_each_run_are_counted(runs: dict[str, Path]) -> None:
    """The config of a user's own data has no number of labels."""
    paths = [runs["normatch"], runs["vectors"]]
    labels = [json.loads((path / "result.json").read_text())["labels"] for path in paths]
    found = compare(paths)
    assert [row.labels for row in found.runs] == labels
    head, *rows = describe(found).splitlines()[:3]
    assert [row.split()[2] for row in (head, *rows)] == ["labels", *map(str, labels)]


@pytest.mark.parametrize(
    ("other", "why"),
    [("vectors", "their data differs"), ("nothing-held-out", "has no labelled test items")],
)
def test_runs_that_saw_other_items_are_not_paired(other: str, why: str, runs: dict[str, Path]) -> None:
    found = compare([runs["normatch"], runs[other]])
    (match,) = found.matches
    assert match.p is None
    assert why in str(match.why_not)
    assert found.same_data == (other != "vectors")


def test_runs_of_other_seeds_drew_other_test_items(runs: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(runs["normatch"], tmp_path / "seed-1")
    config = json.loads((tmp_path / "seed-1" / "config.json").read_text())
    (tmp_path / "seed-1" / "config.json").write_text(json.dumps(config | {"seed": 1}))
    (match,) = compare([runs["normatch"], tmp_path / "seed-1"]).matches
    assert "different seeds" in str(match.why_not)


def test_other_pictures_of_the_same_classes_are_not_paired(runs: dict[str, Path], tmp_path: Path) -> None:
    """As after a label more in a folder, whose test items are in the order of their classes."""
    for name, first in (("before", "1.png"), ("again", "1.png"), ("after", "2.png")):
        shutil.copytree(runs["normatch"], tmp_path / name)
        split = json.loads((tmp_path / name / "split.json").read_text())
        (tmp_path / name / "split.json").write_text(json.dumps(split | {"files": {"test": [first, "3.png"]}}))
    same, *others = compare([tmp_path / name for name in ("before", "again", "after")]).matches
    assert same.p == 1.0
    assert all("their test items differ" in str(match.why_not) for match in others)


@pytest.mark.parametrize("changed", ["x", "y"])
def test_test_items_that_are_not_files_are_told_apart(changed: str, tiny_config: Config, tmp_path: Path) -> None:
    """An array was written anew, with as many items of each class."""
    file, rng = tmp_path / "data.npz", np.random.default_rng(0)
    x, y, test_x, test_y = rng.normal(size=(30, 5)), np.arange(30) % 3, rng.normal(size=(9, 5)), np.arange(9) % 3
    config = tiny_config.replace(data=str(file), test_share=0.0, labels=6, backbone="mlp", augment=AugmentConfig())
    for name in ("before", "again", "after"):
        if name == "after":
            test_x, test_y = (test_x + 1, test_y) if changed == "x" else (test_x, test_y[::-1])
        np.savez(file, x=x, y=y, test_x=test_x, test_y=test_y)
        train(config, tmp_path / name)
    same, *others = compare([tmp_path / name for name in ("before", "again", "after")]).matches
    assert same.p == 1.0
    assert all("their test items differ: the data was changed" in str(match.why_not) for match in others)


def test_one_place_may_have_several_names(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs of before that were started from Python have relative paths."""
    config = json.loads((runs["vectors"] / "config.json").read_text())
    data = Path(config["data"])
    monkeypatch.chdir(data.parent)
    (tmp_path / "link").symlink_to(data.parent)
    for i, name in enumerate((data.name, str(tmp_path / "link" / data.name), f"../{data.parent.name}/{data.name}")):
        shutil.copytree(runs["vectors"], tmp_path / str(i))
        (tmp_path / str(i) / "config.json").write_text(json.dumps(config | {"data": name}))
    found = compare([runs["vectors"], *(tmp_path / str(i) for i in range(3))])
    assert {match.p for match in found.matches} == {1.0}
    assert found.same_data
    assert found.settings == {}


def test_names_tell_runs_apart(runs: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(runs["normatch"], tmp_path / "normatch")
    names = [row.name for row in compare([runs["normatch"], tmp_path / "normatch"]).runs]
    assert names == [f"{runs['normatch'].parent.name}/normatch", f"{tmp_path.name}/normatch"]


def test_the_page(runs: dict[str, Path], tmp_path: Path) -> None:
    page = check_page(write_comparison(compare(list(runs.values())), tmp_path / "page.html"))
    words = " ".join(page.words)
    assert all(name in words for name in runs)
    assert "different data" in words


def test_runs_that_are_equally_good_and_called_alike_are_told_apart(runs: dict[str, Path], tmp_path: Path) -> None:
    names = [f"a-run-with-a-long-name-seed{seed}" for seed in (0, 1)]
    copies = [Path(shutil.copytree(runs["normatch"], tmp_path / name)) for name in names]
    page = check_page(write_comparison(compare(copies), tmp_path / "page.html"))
    assert f"is the highest accuracy, reached by {' and '.join(names)}" in page.words
    assert {"…seed0", "…seed1"} <= set(page.words)


def test_the_verb(runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = [str(runs["supervised"]), str(runs["normatch"])]
    out = tmp_path / "page.html"
    assert main(["compare", *chosen, "--out", str(out)]) == 0
    before = out.read_bytes()
    assert main(["compare", *chosen, "--out", str(out)]) == 2
    assert out.read_bytes() == before
    assert "exists already: choose another name, or replace it with --force" in capsys.readouterr().err
    assert main(["compare", *chosen, "--out", str(out), "--force"]) == 0
    shown = capsys.readouterr().out
    assert "settings that differ" in shown
    assert "p = " in shown
    check_page(out)
    assert main(["compare", *chosen, "--json"]) == 0
    assert [run["name"] for run in json.loads(capsys.readouterr().out)["runs"]] == ["supervised", "normatch"]


def test_wrong_input_is_one_line(runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = str(runs["supervised"])
    unfinished = tmp_path / "unfinished"
    shutil.copytree(runs["supervised"], unfinished)
    (unfinished / "result.json").unlink()
    cases = {
        "at least two": [good],
        "given twice": [good, f"{good}/../supervised"],
        "is no run": [good, str(tmp_path)],
        "is not finished": [good, str(unfinished)],
        "is no folder": [good, str(runs["normatch"]), "--out", str(tmp_path / "nowhere" / "page.html")],
    }
    for message, argv in cases.items():
        assert main(["compare", *argv]) == 2
        captured = capsys.readouterr()
        assert message in captured.err, message
        assert (captured.err.count("\n"), captured.out) == (1, "")


@pytest.mark.parametrize(
    ("p", "said"),
    [
        (0.04, "p = 0.04: they differ"),
        (0.05, "p = 0.05: no clear difference"),
        (0.2, "p = 0.2: no clear difference"),
    ],
)
def test_two_runs_differ_below_five_per_cent(p: float, said: str) -> None:
    match = Match("one", "two", n=90, won=7, lost=3, p=p, why_not=None)
    expected = f"one and two: 7 of 90 items right only in the first, 3 only in the second, {said}"
    assert verdict(match) == expected
