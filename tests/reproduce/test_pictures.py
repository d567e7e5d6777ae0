"""Figures 3, 4 and 5 of runs, as files that stand for themselves."""

import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from normatch.report.charts import Series, alone, line_chart
from normatch.report.sections.curves import FIGURE_3, FIGURE_4
from normatch.reproduce.fill import Filled
from normatch.reproduce.paper import STUDIES
from normatch.reproduce.pictures import STATED, Drawing, draw
from normatch.reproduce.results import Result
from tests.reproduce.conftest import broken, make_result, tables, trial_of

SVG = "{http://www.w3.org/2000/svg}"
NAMES = {"figure3": FIGURE_3, "figure4": FIGURE_4}

ALIGNED = trial_of("figure3", 0)
LAMBDAS = [trial_of("figure5", row) for row in range(6)]
VALUES = [row.name for row in STUDIES["figure5"].rows]

Curves = dict[str, list[tuple[int, float]]]


def make_curves(seed: int = 0) -> Curves:
    rng = np.random.default_rng(seed)
    return {key: [(step, rng.uniform()) for step in (512, 1024, 2048)] for key in (*FIGURE_3, *FIGURE_4)}


def drawn(name: str, results: list[Result], folder: Path, stand_in: str | None = None) -> tuple[Drawing, str]:
    drawing = draw(Filled(STUDIES[name], results, stand_in), folder, "pictures")
    assert drawing is not None
    return drawing, (folder / Path(drawing.path).name).read_text(encoding="utf-8")


def parse(svg: str) -> tuple[ElementTree.Element, ElementTree.Element]:
    """The picture, and the chart in it."""
    root = ElementTree.fromstring(svg)
    assert root.tag == f"{SVG}svg"
    (chart,) = root.findall(f"{SVG}svg")
    return root, chart


def legend(root: ElementTree.Element) -> list[str]:
    return [group.findtext(f"{SVG}text") or "" for group in root.findall(f"{SVG}g")]


@pytest.mark.parametrize("name", NAMES)
def test_each_curve_is_drawn_and_named(name: str, tmp_path: Path) -> None:
    drawing, svg = drawn(name, [make_result(ALIGNED, curves=make_curves())], tmp_path / "new")
    assert (drawing.title, drawing.path) == (STUDIES[name].title, f"pictures/{name}.svg")
    root, chart = parse(svg)
    assert legend(root) == [words.replace("{second}", "flow") for words, _, _ in NAMES[name].values()]
    assert len(list(chart.iter(f"{SVG}path"))) == len(NAMES[name])
    inks = [group.get("style") for group in (*root.findall(f"{SVG}g"), *chart.findall(f"{SVG}g"))]
    assert inks == [f"--ink: var(--{ink})" for _, ink, _ in NAMES[name].values()] * 2


@pytest.mark.parametrize("name", NAMES)
def test_the_numbers_said_are_the_ends_of_the_curves(name: str, tmp_path: Path) -> None:
    curves = make_curves()
    drawing, svg = drawn(name, [make_result(ALIGNED, 4, curves=curves)], tmp_path)
    (lines,) = tables(drawing.said)
    assert [line["ours"] for line in lines] == [f"{100 * curves[key][-1][1]:.1f}" for key in NAMES[name]]
    assert [line["paper"] for line in lines] == [STATED[name][key] for key in NAMES[name]]
    assert [line["at the end, percent"] for line in lines] == legend(parse(svg)[0])
    assert drawing.said.startswith("NorMatch: label seed 4, 2,048 steps.")


def test_a_curve_that_was_not_recorded_is_left_out(tmp_path: Path) -> None:
    curves = make_curves()
    del curves["pseudo/correct"]
    drawing, svg = drawn("figure3", [make_result(ALIGNED, curves=curves)], tmp_path)
    assert legend(parse(svg)[0]) == ["trusted", "confidence above 0.95"]
    assert len(tables(drawing.said)[0]) == 2


def test_the_longest_run_of_the_first_seed_is_drawn(tmp_path: Path) -> None:
    results = [
        make_result(ALIGNED, seed, steps, curves=make_curves(seed + steps)) for steps in (64, 4096) for seed in (1, 0)
    ]
    drawing, _ = drawn("figure3", results, tmp_path)
    assert drawing.said.startswith("NorMatch: label seed 0, 4,096 steps.")
    (lines,) = tables(drawing.said)
    assert lines[0]["ours"] == f"{100 * make_curves(4096)['pseudo/trusted'][-1][1]:.1f}"


def test_the_longest_run_is_drawn_whichever_row_it_is_of(tmp_path: Path) -> None:
    faster, name = trial_of("figure3", 1), STUDIES["figure3"].rows[1].name
    results = [make_result(ALIGNED, 0, 64, curves=make_curves(1)), make_result(faster, 0, 4096, curves=make_curves(2))]
    drawing, _ = drawn("figure3", results, tmp_path)
    assert drawing.said.startswith(f"{name}: label seed 0, 4,096 steps.")
    results.append(make_result(ALIGNED, 1, 4096, curves=make_curves(3)))
    assert drawn("figure3", results, tmp_path)[0].said.startswith("NorMatch: label seed 1, 4,096 steps.")


def test_a_run_that_failed_is_not_drawn_for_the_end_of_training(tmp_path: Path) -> None:
    failed = broken(ALIGNED, 0, curves=make_curves(0))
    drawing, _ = drawn("figure3", [failed, make_result(ALIGNED, 1, curves=make_curves(1))], tmp_path)
    assert drawing.said.startswith("NorMatch: label seed 1,")
    assert draw(Filled(STUDIES["figure3"], [failed]), tmp_path, "pictures") is None


@pytest.mark.parametrize("name", NAMES)
def test_a_stand_in_has_a_picture_of_its_own_without_the_papers_numbers(name: str, tmp_path: Path) -> None:
    results = [make_result(ALIGNED, steps=60, stand_in="digits-40", curves=make_curves())]
    drawing, _ = drawn(name, results, tmp_path, "digits-40")
    assert drawing.path == f"pictures/{name}-digits-40.svg"
    (lines,) = tables(drawing.said)
    assert [list(line) for line in lines] == [["at the end, percent", "ours"]] * len(NAMES[name])
    assert draw(Filled(STUDIES[name], results), tmp_path, "pictures") is None


def said_of(svg: str) -> dict[str, list[float]]:
    """Of each row of intervals: mean, least and greatest, in percent."""
    words = parse(svg)[1].findtext(f"{SVG}desc") or ""
    found = re.findall(r"(λ = .*?): ([\d.]+)%, between ([\d.]+)% and ([\d.]+)%\.", words)
    return {name: [float(number) for number in numbers] for name, *numbers in found}


def test_figure_5_has_means_and_extremes_beside_the_papers(tmp_path: Path) -> None:
    shares = np.random.default_rng(5).uniform(size=(6, 3))
    results = [make_result(t, seed, accuracy=shares[i, seed]) for i, t in enumerate(LAMBDAS) for seed in range(3)]
    drawing, svg = drawn("figure5", results, tmp_path)
    assert drawing.said.startswith("2,048 steps;")
    found = said_of(svg)
    for name, each in zip(VALUES, 100 * shares, strict=True):
        assert found.pop(name) == pytest.approx([each.mean(), each.min(), each.max()], abs=0.006)
    assert found == {f"{VALUES[0]}, paper": [92.78] * 3, f"{VALUES[2]}, paper": [93.41] * 3}
    assert len(list(parse(svg)[1].iter(f"{SVG}circle"))) == 8


def test_figure_5_takes_the_steps_at_which_most_values_were_run(tmp_path: Path) -> None:
    results = [make_result(trial, steps=1024) for trial in LAMBDAS[:3]]
    results += [make_result(trial, seed, 4096) for trial in LAMBDAS[:2] for seed in range(4)]
    assert drawn("figure5", results, tmp_path)[0].said.startswith("1,024 steps;")
    results.append(make_result(LAMBDAS[5], steps=4096))
    drawing, svg = drawn("figure5", results, tmp_path)
    assert drawing.said.startswith("4,096 steps;")
    assert {name for name in said_of(svg) if "paper" not in name} == {VALUES[0], VALUES[1], VALUES[5]}


def test_figure_5_leaves_out_what_failed(tmp_path: Path) -> None:
    results = [make_result(LAMBDAS[0], accuracy=0.5), broken(LAMBDAS[0], 1), broken(LAMBDAS[3])]
    found = said_of(drawn("figure5", results, tmp_path)[1])
    assert found[VALUES[0]] == [50] * 3
    assert VALUES[3] not in found
    assert draw(Filled(STUDIES["figure5"], results[1:]), tmp_path, "pictures") is None


def test_one_value_of_a_stand_in_is_enough_for_figure_5(tmp_path: Path) -> None:
    results = [make_result(LAMBDAS[0], steps=60, accuracy=0.5, stand_in="digits-40")]
    assert said_of(drawn("figure5", results, tmp_path, "digits-40")[1]) == {VALUES[0]: [50] * 3}


@pytest.mark.parametrize("name", STUDIES)
def test_nothing_is_drawn_of_tables_or_without_runs(name: str, tmp_path: Path) -> None:
    assert draw(Filled(STUDIES[name], []), tmp_path / "pictures", "pictures") is None
    if not name.startswith("figure"):
        results = [make_result(STUDIES[name].trials()[0], curves=make_curves())]
        assert draw(Filled(STUDIES[name], results), tmp_path / "pictures", "pictures") is None
    assert not (tmp_path / "pictures").exists()


def test_each_label_seed_of_the_longest_fast_runs_has_a_curve(tmp_path: Path) -> None:
    (trial,) = STUDIES["fast"].trials()

    def ran(seed: int, steps: int, failed: str | None = None) -> Result:
        curve = {"test/accuracy": [(steps // 2, 0.5), (steps, 0.9)]}
        return make_result(trial, seed, steps, curves=curve, seconds=60.0 * (seed + 1), failed=failed)

    failed = ran(3, 2048, "diverged")
    drawing, svg = drawn("fast", [ran(0, 1024), ran(0, 2048), ran(2, 2048), failed], tmp_path)
    root, chart = parse(svg)
    assert legend(root) == ["label seed 0", "label seed 2", "the paper's, after 1024 epochs"]
    assert len(list(chart.iter(f"{SVG}path"))) == 3
    assert "2,048 steps of the first row, label seed by label seed in 1.0, 3.0 minutes" in drawing.said
    assert "94.7" in (chart.findtext(f"{SVG}desc") or "")


def test_curves_without_pseudo_labels_are_no_figure(tmp_path: Path) -> None:
    assert draw(Filled(STUDIES["figure3"], [make_result(ALIGNED, curves={"loss": [(1, 2.0)]})]), tmp_path, "p") is None


def test_a_picture_brings_its_colours_for_light_and_dark() -> None:
    root, chart = parse(alone(line_chart("t", [Series("s", [(1, 0.5)], "blue")])))
    style = root.findtext(f"{SVG}style") or ""
    used = set(re.findall(r"var\((--[\w-]+)\)", ElementTree.tostring(root, encoding="unicode")))
    assert "prefers-color-scheme: dark" in style
    assert {name for name in used if name != "--ink"} <= set(re.findall(r"(--[\w-]+):", style))
    assert chart.get("viewBox") == "0 0 400 240"


@pytest.mark.parametrize("chart", ["<svg></svg>", '<svg viewBox="1 2 3 4"></svg>', ""])
def test_what_has_no_size_cannot_stand_alone(chart: str) -> None:
    with pytest.raises(ValueError, match="viewBox"):
        alone(chart)


names = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=50)


@settings(max_examples=50)
@given(st.lists(names, max_size=9))
def test_legends_overlap_neither_each_other_nor_the_chart(words: list[str]) -> None:
    series = [Series(name, [(1, 0.5)], "blue") for name in words]
    root, chart = parse(alone('<svg viewBox="0 0 400 240"></svg>', series))
    assert legend(root) == words
    top = float(chart.get("y", "nan"))
    assert root.get("viewBox") == f"0 0 400 {240 + top:g}"
    ends: dict[float, float] = {}
    for group, name in zip(root.findall(f"{SVG}g"), words, strict=True):
        (line,), (text,) = group.findall(f"{SVG}line"), group.findall(f"{SVG}text")
        y, left, begin = float(text.get("y", "nan")), float(line.get("x1", "nan")), float(text.get("x", "nan"))
        assert y < top
        assert ends.get(y, 0) < left < float(line.get("x2", "nan")) < begin
        ends[y] = begin + 6 * len(name)
        assert ends[y] <= 400 or left == 12
    assert list(ends) == sorted(ends)
