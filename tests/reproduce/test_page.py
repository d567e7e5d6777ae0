"""The page: every number of ours with the file that it comes from, in Markdown and for a terminal."""

import re

import numpy as np
import pytest

from normatch.reproduce.fill import Filled
from normatch.reproduce.page import plain, relative, section, table
from normatch.reproduce.paper import STUDIES, Study
from normatch.reproduce.pictures import Drawing
from normatch.reproduce.results import Result
from tests.reproduce.conftest import broken, make_result, tables, trial_of

linked = relative("results")


def shown(name: str, results: list[Result], stand_in: str | None = None) -> list[list[dict[str, str]]]:
    return tables(section(Filled(STUDIES[name], results, stand_in), linked))


def signed(number: float) -> str:
    return f"{number:+.2f}".replace("-", "−")


@pytest.fixture(scope="module")
def reached() -> dict[str, list[float]]:
    """Accuracies of three seeds for each row of Table 1."""
    rng = np.random.default_rng(7)
    return {row.name: rng.uniform(0.3, 0.99, 3).tolist() for row in STUDIES["table1"].rows}


@pytest.fixture(scope="module")
def results(reached: dict[str, list[float]]) -> list[Result]:
    return [
        make_result(trial_of("table1", row), seed, 4096, share)
        for row, each in enumerate(reached.values())
        for seed, share in enumerate(each)
    ]


def test_every_row_has_the_papers_number_ours_and_the_difference(
    reached: dict[str, list[float]], results: list[Result]
) -> None:
    lines, _ = shown("table1", results)
    for line, row in zip(lines, STUDIES["table1"].rows, strict=True):
        ours, paper = 100 * np.array(reached[row.name]), row.cells[0].paper["accuracy"].value
        assert line[""] == row.name
        assert line["paper"] == f"{paper:.2f}"
        assert line["ours"] == f"{ours.mean():.2f} ± {ours.std(ddof=1):.2f}"
        assert line["ours − paper"] == signed(ours.mean() - paper)
        assert (line["n"], line["steps"], line["of the schedule"]) == ("3", "4,096", "1.3%")


def test_every_result_is_linked_with_its_own_number(reached: dict[str, list[float]], results: list[Result]) -> None:
    lines, _ = shown("table1", results)
    for line, trial in zip(lines, STUDIES["table1"].trials(), strict=True):
        assert re.findall(r"\[(.*?)\]\((.*?)\)", line["each label seed"]) == [
            (f"{100 * share:.2f}", f"results/cifar10-40-{trial.name}-4096-seed{seed}.json")
            for seed, share in enumerate(reached[line[""]])
        ]


def test_gains_stand_below_their_table(reached: dict[str, list[float]], results: list[Result]) -> None:
    _, lines = shown("table1", results)
    pairs = zip(reached.values(), STUDIES["table1"].rows, strict=True)
    (base, first), *others = ((np.array(each), row) for each, row in pairs)
    for line, (each, row) in zip(lines, others, strict=True):
        gain = 100 * (each - base)
        assert line[""] == row.name
        assert line["ours"] == f"{signed(gain.mean())} ± {gain.std(ddof=1):.2f}"
        paper = [cell.paper["accuracy"].value for cell in (*row.cells, *first.cells)]
        assert line["paper"] == signed(paper[0] - paper[1])
        assert (line["n"], line["steps"]) == ("3", "4,096")
        low, high = (float(end.replace("−", "-")) for end in line["95 % interval of the mean"].split(" to "))
        assert (low + high) / 2 == pytest.approx(gain.mean(), abs=0.006)
        assert high - low == pytest.approx(2 * 4.3027 * gain.std(ddof=1) / 3**0.5, abs=0.02)


def test_one_run_has_no_spread() -> None:
    results = [make_result(trial_of("table1", row), accuracy=share) for row, share in ((0, 0.5), (1, 0.625))]
    lines, gained = shown("table1", results)
    assert (lines[1]["ours"], gained[0]["ours"]) == ("62.50", "+12.50")


def test_without_runs_cells_are_visibly_empty() -> None:
    (lines,) = shown("table1", [])
    assert len(lines) == 4
    for line in lines:
        assert float(line.pop("paper")) > 80
        assert line.pop("")
        assert line == {
            "ours": "–",
            "ours − paper": "–",
            "n": "0",
            "steps": "–",
            "of the schedule": "–",
            "each label seed": "",
        }


def test_longer_runs_have_lines_of_their_own_above() -> None:
    trial = trial_of("table1", 0)
    lines, *_ = shown("table1", [make_result(trial, steps=steps) for steps in (512, 300 * 1024)])
    assert [(line[""], line["steps"], line["of the schedule"]) for line in lines[:3]] == [
        ("FixMatch", "307,200", "100%"),
        ("FixMatch", "512", "0.2%"),
        ("FixMatch + NCUE", "–", "–"),
    ]


def test_a_failed_run_is_shown_and_does_not_count() -> None:
    trial = trial_of("table1", 1)
    results = [make_result(trial, 0, accuracy=0.8), broken(trial, 1), make_result(trial, 2, accuracy=0.9)]
    line = shown("table1", results)[0][1]
    assert line["ours"] == f"85.00 ± {np.std([80, 90], ddof=1):.2f}"
    assert line["n"] == "2, 1 failed"
    assert re.findall(r"\[(.*?)\]", line["each label seed"]) == ["80.00", "failed", "90.00"]
    alone = shown("table1", [broken(trial, 1)])[0][1]
    assert (alone["ours"], alone["ours − paper"], alone["n"]) == ("–", "–", "0, 1 failed")


def test_other_measures_have_columns_of_their_own() -> None:
    results = [
        make_result(trial_of("table3", 0), seed, weights=44_544, products=40_960, confident=0.8231) for seed in (0, 1)
    ]
    line = shown("table2", results)[0][0]
    assert (line["accuracy, paper"], line["accuracy, ours"]) == ("93.41", "90.00 ± 0.00")
    assert (line["weights (M), paper"], line["weights (M), ours"]) == ("0.08", "0.045")
    assert (line["multiply-adds (M), paper"], line["multiply-adds (M), ours"]) == ("0.08", "0.041")
    line = shown("table3", results)[0][0]
    assert (line["confident, paper"], line["confident, ours"]) == ("82.31", "82.31 ± 0.00")
    assert line["ours − paper"] == signed(90 - 93.41)


def test_what_the_paper_does_not_number_has_no_difference() -> None:
    line = shown("choices", [make_result(trial_of("choices", 1), accuracy=0.5)])[0][1]
    assert (line["paper"], line["ours"], line["ours − paper"]) == ("–", "50.00", "–")


def test_a_stand_in_is_not_held_against_the_papers_numbers() -> None:
    results = [make_result(trial_of("table1", 0), steps=60, accuracy=0.5, stand_in="digits-40")]
    words = section(Filled(STUDIES["table1"], results, "digits-40"), linked)
    assert "digits-40" in words.splitlines()[0]
    assert not re.search("87.77|92.78|91.55|93.41", words)
    (lines,) = tables(words)
    assert not any("paper" in name for name in lines[0])
    assert (lines[0]["ours"], lines[0]["steps"], lines[0]["of the schedule"]) == ("50.00", "60", "10%")
    assert shown("table1", results)[0][0]["ours"] == "–"


@pytest.mark.parametrize("name", ["table2", "figure3", "figure5"])
def test_what_is_said_of_the_papers_numbers_is_said_where_they_are(name: str) -> None:
    study = STUDIES[name]
    assert study.of_paper in section(Filled(study, []), linked)
    assert study.of_paper not in section(Filled(study, [], "digits-40"), linked)


def test_each_data_set_has_a_line() -> None:
    study = STUDIES["table6"]
    results = [make_result(trial_of("table6", -1, column), accuracy=column / 10) for column in range(7)]
    lines, _ = shown("table6", results)
    named = [("FixMatch", column) for column in study.columns] + [("NorMatch", column) for column in study.columns]
    assert [(line[""], line["data, labels"]) for line in lines] == named
    assert [line["ours"] for line in lines] == ["–"] * 7 + [f"{10 * column:.2f}" for column in range(7)]
    assert lines[7]["paper"] == "94.70 ± 0.16"


@pytest.mark.parametrize("name", ["table6", "table7"])
def test_methods_that_we_lack_are_listed_apart(name: str) -> None:
    study = STUDIES[name]
    words = section(Filled(study, []), linked)
    head, _, rest = words.partition("In the paper alone:")
    (ours,), (theirs,) = tables(head), tables(rest)
    lacked = [row for row in study.rows if row.name not in ("FixMatch", "NorMatch")]
    assert [line[""] for line in theirs] == [row.name for row in lacked]
    assert {line[""] for line in ours} == {"FixMatch", "NorMatch"}
    for line, row in zip(theirs, lacked, strict=True):
        for text, cell in zip(list(line.values())[1:], row.cells, strict=True):
            scores = [score for s in cell.paper.values() for score in (s.value, s.spread) if score is not None]
            assert [float(part) for part in text.split(" ± ") if part != "–"] == scores


@pytest.mark.parametrize("name", [name for name in STUDIES if name not in ("table6", "table7")])
def test_where_we_lack_nothing_nothing_is_listed_apart(name: str) -> None:
    assert "In the paper alone" not in section(Filled(STUDIES[name], []), linked)


def test_where_and_when_it_was_trained_is_said_once() -> None:
    trials = [trial_of("table1", 0), trial_of("table1", 1), trial_of("table2", 1)]
    days = ["2026-03-02T10:00:00+00:00", "2026-01-31T10:00:00+00:00", "2027-01-01T00:00:00+00:00"]
    results = [make_result(trial, date=day) for trial, day in zip(trials, days, strict=True)]
    words = section(Filled(STUDIES["table1"], results), linked)
    assert words.count("an abacus, torch 2.6") == 1
    assert "2026-01-31 to 2026-03-02" in words
    assert "2027" not in words
    assert "Trained" not in section(Filled(STUDIES["table1"], []), linked)


def test_a_drawing_is_shown_with_its_words() -> None:
    words = section(Filled(STUDIES["figure3"], []), linked, Drawing("A title", "pictures/figure3.svg", "What it says."))
    assert "![A title](pictures/figure3.svg)\n\nWhat it says." in words


@pytest.mark.parametrize("stand_in", [None, "digits-40"])
def test_the_terminal_gets_the_same_numbers(stand_in: str | None) -> None:
    rng = np.random.default_rng(3)
    results = [
        make_result(trial, seed, 60, rng.uniform(), stand_in=stand_in)
        for trial in STUDIES["table1"].trials()
        for seed in (0, 1)
    ]
    results.append(broken(trial_of("table1", 1), 2, steps=60, stand_in=stand_in))
    shown_here = plain(Filled(STUDIES["table1"], results, stand_in))
    for found in shown("table1", results, stand_in):
        for line in found:
            line.pop("each label seed", None)
            assert "  ".join(line.values()) in re.sub(" {2,}", "  ", shown_here)
    assert "](" not in shown_here


@pytest.mark.parametrize("study", STUDIES.values(), ids=STUDIES.keys())
def test_every_table_is_rectangular(study: Study) -> None:
    assert len({len(line) for line in table(Filled(study, [make_result(study.trials()[0])]), linked)}) == 1
    if study.movable:
        assert len({len(line) for line in table(Filled(study, [], "digits-40"), linked)}) == 1
