"""Runs side by side: seeds are repetitions, and tests are those of SciPy."""

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from normatch.cli import main
from normatch.report import compare, describe, write_comparison
from normatch.report.compare import tables
from tests.report.conftest import Edited, Runs
from tests.report.test_page import Page

Seeds = Callable[..., list[Path]]


def correct(run: Path) -> np.ndarray:
    with (run / "predictions.csv").open(newline="") as file:
        return np.array([row["label"] == row["truth"] for row in csv.DictReader(file)])


@pytest.fixture
def seeds(edited: Edited) -> Seeds:
    """Copies of a run that claim other seeds, machines and accuracies."""

    def make(kind: str, name: str, accuracies: list[float], first: int = 0, **config: object) -> list[Path]:
        made = []
        for seed, accuracy in enumerate(accuracies, first):
            changed = {"seed": seed, "name": f"{name}{seed}", "pool": "host"} | config
            result = {"seed": seed, "accuracy": accuracy}
            made.append(edited(kind, f"{name}-seed{seed}", config=changed, result=result))
        return made

    return make


def test_seeds_of_one_config_are_repetitions(seeds: Seeds, runs: Runs, tmp_path: Path) -> None:
    accuracies = [0.6, 0.7, 0.75]
    found = compare([*seeds("normatch", "ours", accuracies), runs["supervised"]])
    ours, other = found["groups"]
    assert (ours["name"], other["name"]) == ("ours (3 runs)", "supervised")
    assert [(run["name"], run["seed"]) for run in ours["runs"]] == [(f"ours-seed{i}", i) for i in range(3)]
    assert ours["accuracy"] == pytest.approx(np.mean(accuracies))
    t = stats.t.interval(0.95, 2, np.mean(accuracies), stats.sem(accuracies))
    assert ours["interval"] == pytest.approx((t[0], min(t[1], 1)))
    wilson = stats.binomtest(int(correct(runs["supervised"]).sum()), 360).proportion_ci(method="wilson")
    assert other["interval"] == pytest.approx((wilson.low, wilson.high))
    assert "seed" not in found["settings"]
    assert "method" in found["settings"]
    (wide,) = compare(seeds("normatch", "wide", [0.6, 0.99]))["groups"]
    assert wide["interval"] == (0, 1), "beyond there are no accuracies"
    alike = compare(seeds("normatch", "same", [0.9, 0.9]))
    (same,) = alike["groups"]  # no interval of no width
    assert same["interval"][0] < 0.9 < same["interval"][1]
    page = Page(write_comparison(alike, tmp_path / "page.html").read_text())
    assert "1 config, 2 runs" in page.words
    assert "90.0% is the mean accuracy of same (2 runs)" in page.words


def test_runs_are_paired_by_seed_and_fold_or_compared_as_groups(seeds: Seeds, edited: Edited) -> None:
    ours, theirs = [0.6, 0.7, 0.75, 0.5], [0.55, 0.66, 0.74]
    runs, others = seeds("normatch", "a", ours), seeds("fixmatch", "c", theirs, first=7)
    (paired,) = compare([*runs, *seeds("fixmatch", "b", theirs)])["differences"]
    expected = stats.ttest_rel(ours[:3], theirs)
    assert (paired["first"], paired["second"]) == ("a (4 runs)", "b (3 runs)")
    assert paired["test"] == "paired t, 3 pairs of runs"
    assert paired["difference"] == pytest.approx(np.mean(ours[:3]) - np.mean(theirs))
    assert paired["p"] == pytest.approx(expected.pvalue)
    assert paired["interval"] == pytest.approx(tuple(expected.confidence_interval()))
    (found,) = compare([*runs, *others])["differences"]
    welch = stats.ttest_ind(ours, theirs, equal_var=False)
    assert found["test"] == "Welch's t, 4 and 3 runs"
    assert found["p"] == pytest.approx(welch.pvalue)
    assert found["interval"] == pytest.approx(tuple(welch.confidence_interval()))
    (first, second) = (
        [edited(kind, f"{kind}{i}", config={"fold": i}, result={"accuracy": a}) for i, a in enumerate(accuracies)]
        for kind, accuracies in (("normatch", ours[:3]), ("fixmatch", theirs))
    )
    (by_fold,) = compare([*first, *second])["differences"]
    assert (by_fold["test"], by_fold["p"]) == (paired["test"], pytest.approx(paired["p"]))
    (single,) = compare([runs[0], others[0]])["differences"]
    assert (single["p"], single["test"][:34]) == (None, "not comparable: train both with th")


def test_single_runs_are_compared_sample_by_sample(runs: Runs) -> None:
    (found,) = compare([runs["supervised"], runs["normatch"]])["differences"]
    first, second = correct(runs["supervised"]), correct(runs["normatch"])
    won, lost = int((first & ~second).sum()), int((second & ~first).sum())
    assert found["test"] == "McNemar, 360 test samples"
    assert found["p"] == pytest.approx(stats.binomtest(won, won + lost).pvalue)
    assert found["difference"] == pytest.approx((won - lost) / 360)


def test_many_configs_are_compared_with_the_best(seeds: Seeds, tmp_path: Path) -> None:
    found = compare([seeds("supervised", f"run{i}", [0.5 + 0.01 * (i * 5 % 8)], ratio=i + 1)[0] for i in range(8)])
    others = [f"run{i}-seed0" for i in range(8) if i != 3]
    assert [(d["first"], d["second"]) for d in found["differences"]] == [("run3-seed0", other) for other in others]
    page = Page(write_comparison(found, tmp_path / "page.html").read_text())
    assert "57.0% is the highest accuracy, reached by run3-seed0" in page.words
    for p, said in ((0.049, "they differ"), (0.05, "no clear difference")):
        difference = {"first": "a", "second": "b", "test": "t", "difference": 0.04, "interval": None, "p": p}
        rows = tables(found | {"differences": [difference]})["differences"]
        assert rows[1] == ["a", "b", "+4.00", "–", f"{p:.2g}", said, "t"]


def test_only_settings_that_differ_are_listed(runs: Runs) -> None:
    assert compare([runs["normatch"], runs["validation"]])["settings"] == {"validation": [0.0, 0.1]}
    # Of the settings that one method has alone, those that are not its default.
    methods = compare([runs["normatch"], runs["supervised"]])["settings"]
    assert methods["method"] == ["normatch", "supervised"]
    assert all(values[1] is None for name, values in methods.items() if name != "method")


@pytest.mark.parametrize(("other", "why"), [("vectors", "their data"), ("nothing-held-out", "has no accuracy")])
def test_runs_that_saw_other_samples_are_not_compared(other: str, why: str, runs: Runs) -> None:
    found = compare([runs["normatch"], runs[other]])
    (difference,) = found["differences"]
    assert difference["p"] is None
    assert why in difference["test"]
    assert found["same_data"] == (other != "vectors")


@pytest.mark.parametrize("field", ["files", "digest"])
def test_other_test_samples_of_the_same_classes_are_not_paired(field: str, edited: Edited) -> None:
    """As after a label more in a folder, or an array written anew, with as many samples of each class."""
    same, other = ({field: {"test": [name, "3.png"]} if field == "files" else name} for name in ("1.png", "2.png"))
    before, again = (edited(kind, kind, split=same) for kind in ("normatch", "fixmatch"))
    after = edited("supervised", "after", split=other)
    assert [d["p"] is None for d in compare([before, again, after])["differences"]] == [False, True, True]


def test_one_place_may_have_several_names(
    runs: Runs, edited: Edited, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = Path(json.loads((runs["vectors"] / "config.json").read_text())["data"])
    monkeypatch.chdir(data.parent)
    (tmp_path / "link").symlink_to(data.parent)
    places = (data.name, str(tmp_path / "link" / data.name), f"../{data.parent.name}/{data.name}")
    found = compare([runs["vectors"], *(edited("vectors", str(i), config={"data": p}) for i, p in enumerate(places))])
    assert found["same_data"]
    assert len(found["groups"]) == 1


def test_the_page_and_the_text(runs: Runs, tmp_path: Path) -> None:
    found = compare(list(runs.values()))
    page = Page(write_comparison(found, tmp_path / "page.html").read_text())
    assert all(name in page.words for name in runs)
    assert "different data" in page.words
    head, *rows = (line.split() for line in describe(found).splitlines()[:8])
    labels = [str(json.loads((path / "result.json").read_text())["labels"]) for path in runs.values()]
    assert [row[2] for row in (head, *rows)] == ["labels", *labels]
    twice = Path(shutil.copytree(runs["normatch"], tmp_path / "normatch"))
    names = [run["name"] for group in compare([runs["normatch"], twice])["groups"] for run in group["runs"]]
    assert names == [f"{runs['normatch'].parent.name}/normatch", f"{tmp_path.name}/normatch"]


def test_the_verb(runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, other, out = str(runs["supervised"]), str(runs["normatch"]), tmp_path / "page.html"
    assert main(["compare", good, other, "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "settings that differ" in shown
    assert "McNemar, 360 test samples" in shown
    assert main(["compare", good, other, "--json"]) == 0
    assert [group["name"] for group in json.loads(capsys.readouterr().out)["groups"]] == ["supervised", "normatch"]
    assert main(["compare", good, other, "--out", str(out)]) == 2
    captured = capsys.readouterr()
    assert "exists already: choose another name, or replace it with --force" in captured.err
    assert (captured.err.count("\n"), captured.out) == (1, "")
    assert main(["compare", good, other, "--out", str(out), "--force"]) == 0
