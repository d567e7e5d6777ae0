"""Tables and figures as text: what is compared with the paper, what stays empty, what is drawn."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from normatch.reproduce.pages import plain, section
from normatch.reproduce.paper import STUDIES
from normatch.reproduce.results import Table
from tests.reproduce.conftest import make_result, trial_of


def lines(markdown: str) -> list[list[dict[str, str]]]:
    """The tables of a page: each line by the names of the columns."""
    found = []
    for block in re.findall(r"(?:^\|.*\|\n?)+", markdown, re.MULTILINE):
        head, rule, *rows = ([cell.strip() for cell in line[1:-1].split(" | ")] for line in block.splitlines())
        assert set(rule) == {"---"}
        found.append([dict(zip(head, row, strict=True)) for row in rows])
    return found


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_has_a_section_without_results(name: str, tmp_path: Path) -> None:
    text = section(Table(STUDIES[name], []), "results", tmp_path)
    first = lines(text)[0]
    if len(STUDIES[name].columns) <= 2:
        assert [row["n"] for row in first] == ["0"] * len(STUDIES[name].trials())
    assert not list(tmp_path.iterdir())


def test_only_whole_schedules_are_compared_with_the_paper(tmp_path: Path) -> None:
    results = [make_result(trial_of("table1", 0), seed, 0.8 + 0.01 * seed) for seed in (0, 1)]
    results += [
        make_result(trial_of("table1", 1), steps=10_240),
        make_result(trial_of("table1", 2), 0, None, failed="x"),
    ]
    first, second, third, last = lines(section(Table(STUDIES["table1"], results), "files", tmp_path))[0]
    assert first | {"": "", "each label seed": ""} == {
        "": "",
        "paper": "87.77",
        "ours": "80.50 ± 0.71",
        "ours − paper": "−7.27",
        "n": "2",
        "steps": "307,200",
        "of the schedule": "100%",
        "each label seed": "",
    }
    assert first["each label seed"].startswith("[80.00](files/cifar10-40-fixmatch-307200-seed0.json)")
    assert (second["ours"], second["ours − paper"], second["of the schedule"]) == ("90.00", "–", "3.3%")
    assert (third["ours"], third["n"]) == ("–", "0, 1 diverged")
    assert "[diverged](files/" in third["each label seed"]
    assert (last["ours"], last["ours − paper"], last["n"]) == ("–", "–", "0")


def test_a_wide_table_has_a_line_a_method_and_details_of_runs_alone(tmp_path: Path) -> None:
    results = [make_result(trial_of("table6", 5), seed, 0.8 + 0.01 * seed, steps=10_240) for seed in (0, 1)]
    as_in_paper, ours, *rest = lines(section(Table(STUDIES["table6"], results), "files", tmp_path))
    assert not rest
    assert [row[""] for row in as_in_paper] == [row.name for row in STUDIES["table6"].rows]
    assert as_in_paper[5]["CIFAR-10, 40"] == "86.19 ± 3.37 (80.50 ± 0.71, 1%)"
    assert (as_in_paper[5]["CIFAR-10, 250"], as_in_paper[0]["CIFAR-10, 40"]) == ("94.93 ± 0.65", "–")
    assert [(row[""], row["data, labels"], row["n"]) for row in ours] == [("FixMatch", "CIFAR-10, 40", "2")]


def test_gains_are_printed_with_their_interval() -> None:
    trials = [trial_of("table3", row) for row in (0, 1)]
    results = [make_result(trials[0], seed, 0.9) for seed in range(3)]
    results += [make_result(trials[1], seed, 0.8 + 0.01 * seed) for seed in range(3)]
    text = plain(Table(STUDIES["table3"], results))
    assert re.search(r"not stopped +−64\.14 +−9\.00 +−11\.48 to −6\.52 +3 +307,200", text)


@pytest.mark.parametrize("name", ["figure3", "figure4"])
def test_figures_show_the_longest_run_and_the_mean_weight(name: str, tmp_path: Path) -> None:
    keys = ("trusted", "confident", "correct", "weight", "uncertainty", "accuracy_trusted")
    curves = {f"pseudo/{key}": [(1, 0.1), (307_200, 0.5)] for key in keys}
    short = {name: [(1, 0.2)] for name in curves}
    trial = trial_of(name, 0)
    results = [make_result(trial, 4, curves=curves), make_result(trial, 0, steps=20, curves=short)]
    text = section(Table(STUDIES[name], results), "results", tmp_path)
    assert "Label seed 4, 307,200 steps." in text
    ends = {row["at the end, percent"]: row["ours"] for row in lines(text)[0]}
    assert set(ends.values()) == {"50.0"}
    assert "mean weight τ" in ends
    assert f"({tmp_path.name}/{name}.svg)" in text
    assert ElementTree.parse(tmp_path / f"{name}.svg").getroot().tag.endswith("svg")
