"""Charts: every value at its place, for whatever values there are."""

import math
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from normatch.evaluate.metrics import reliability
from normatch.report.charts import (
    IntervalRow,
    Series,
    bar_chart,
    interval_chart,
    latent_chart,
    line_chart,
    matrix_chart,
    reliability_chart,
)
from normatch.report.charts.axes import Axis, round_ticks
from normatch.report.charts.scatter import HIGHEST, LETTER, LINE, LOWEST, MOST_NAMES, apart

finite = st.floats(-1e9, 1e9, allow_subnormal=False)


def parse(svg: str) -> ElementTree.Element:
    root = ElementTree.fromstring(svg)
    assert root.tag == "svg"
    assert root.get("role") == "img"
    assert root.get("aria-label")
    assert [child.tag for child in list(root)[:2]] == ["title", "desc"]
    assert "nan" not in svg
    return root


@given(finite, finite, st.integers(2, 8))
def test_ticks_are_even_round_and_enclose(a: float, b: float, about: int) -> None:
    low, high = min(a, b), max(a, b)
    if 0 < high - low < 1e-6 * max(abs(low), abs(high)):
        return
    ticks = round_ticks(low, high, about)
    step = ticks[1] - ticks[0]
    tolerance = 1e-6 * max(step, abs(low), abs(high))
    assert ticks[0] <= low + tolerance
    assert ticks[-1] >= high - tolerance
    assert 2 <= len(ticks) <= 2 * about + 2
    assert np.diff(ticks) == pytest.approx([step] * (len(ticks) - 1), rel=1e-3, abs=tolerance)
    leading = step / 10 ** math.floor(math.log10(step * (1 + 1e-9)))
    assert min(abs(leading - m) for m in (1, 2, 5)) < 0.01


def test_an_axis_maps_ends_to_ends() -> None:
    axis = Axis(10, 20, 100, 300)
    assert (axis(10), axis(15), axis(20)) == (100, 200, 300)


def test_lines_break_where_nothing_was_counted() -> None:
    series = Series("a & b", [(1, 0.0), (2, None), (3, 0.5), (4, 1.0)], "blue", "2 3")
    svg = line_chart("Title <1>", [series], shares=True, low=0, high=1)
    root = parse(svg)
    (path,) = root.iter("path")
    assert re.sub(r"[^ML]", "", path.get("d", "")) == "MML"
    circles = list(root.iter("circle"))
    assert len(circles) == 3
    heights = [float(c.get("cy", "nan")) for c in circles]
    assert heights == sorted(heights, reverse=True)
    assert "a & b: 0% at step 1, 100% at step 4." in (root.findtext("desc") or "")


@given(st.lists(st.tuples(st.integers(1, 10**6), st.none() | st.floats(-1e6, 1e6)), min_size=1, max_size=80))
def test_any_curve_can_be_drawn(points: list[tuple[int, float | None]]) -> None:
    if not any(y is not None for _, y in points):
        return
    parse(line_chart("t", [Series("s", sorted(points, key=lambda p: p[0]), "blue")]))


@given(st.floats(0, 1), st.integers(1, 3))
def test_the_axis_of_a_constant_share_stays_within_0_and_100_percent(share: float, evaluations: int) -> None:
    points = [(float(step), share) for step in range(1, evaluations + 1)]
    drawn = line_chart("Accuracy", [Series("test accuracy", points, "blue")], shares=True)
    ticks = [float(tick) for tick in re.findall(r">([\d.]+)%</text>", drawn)]
    assert len(ticks) > 2
    assert 0 <= ticks[0] <= 100 * share + 0.1
    assert 100 * share - 0.1 <= ticks[-1] <= 100


@pytest.mark.parametrize("classes", [2, 10, 16, 17, 40, 41, 100])
def test_the_matrix_has_a_cell_for_each_count(classes: int) -> None:
    rng = np.random.default_rng(classes)
    table = rng.integers(0, 3, (classes, classes))
    root = parse(matrix_chart(table.tolist(), [f"class {k}" for k in range(classes)]))
    cells = [r for r in root.iter("rect") if r.get("class") in ("right", "wrong")]
    assert len(cells) == np.count_nonzero(table)
    assert sum(r.get("class") == "right" for r in cells) == np.count_nonzero(np.diag(table))
    assert all(0 <= float(r.get("fill-opacity", "nan")) <= 1 for r in cells)


def test_a_matrix_of_empty_classes_can_be_drawn() -> None:
    parse(matrix_chart([[0, 0], [0, 3]], ["a", "b"]))


def test_reliability_draws_bars_of_bins_that_have_items() -> None:
    bins = reliability(np.array([0.31, 0.95, 0.99]), np.array([False, True, True]))
    root = parse(reliability_chart("t", bins))
    bars = [r for r in root.iter("rect") if r.get("class") == "bar"]
    assert len(bars) == sum(b.n > 0 for b in bins) == 2
    assert float(bars[1].get("height", "nan")) == 200


def test_latents_keep_one_scale_for_both_axes() -> None:
    points = [(0.0, 0.0), (10.0, 0.0), (0.0, 4.0)]
    root = parse(
        latent_chart(points, [0, 1, 11], [5, 6, 7], [*points[:2], *[None] * 10], points * 4, [1.0] * 12, ["c"] * 12)
    )
    marks = [p.get("transform", "") for p in root.iter("path") if p.get("class") == "point"]
    (ax, ay), (bx, by), (cx, cy) = (map(float, re.findall(r"-?[\d.]+", mark)) for mark in marks)
    assert (bx - ax) / 10 == pytest.approx((ay - cy) / 4, abs=0.05)
    assert (ay, ax) == (by, cx)
    spread = next(iter(root.iter("circle")))
    assert float(spread.get("r", "nan")) == pytest.approx((bx - ax) / 10, abs=0.1)


def test_latents_of_one_place_can_be_drawn() -> None:
    parse(latent_chart([(1.0, 1.0)] * 3, [0, 0, 0], [1, 2, 3], [(1.0, 1.0)], [(1.0, 1.0)], [1.0], ["a"]))


def test_bars_are_as_long_as_their_shares() -> None:
    root = parse(bar_chart("t", ["a", "b" * 50], {"first": ("blue", [0.2, 0.4]), "second": ("grey", [0.1, 0.0])}))
    lengths = [float(r.get("width", "nan")) for r in root.iter("rect")]
    assert lengths[0] / lengths[2] == pytest.approx(0.5, abs=0.01)
    assert lengths[3] == 0


def test_intervals_enclose_their_dot() -> None:
    rows = [IntervalRow("a", 0.9, (0.8, 0.95), "c0"), IntervalRow("b", 1.0, (0.93, 1.0), "c1")]
    root = parse(interval_chart("t", rows))
    dots = [float(c.get("cx", "nan")) for c in root.iter("circle")]
    bars = [e for e in root.iter("line") if e.get("class") == "interval"]
    for dot, bar in zip(dots, bars, strict=True):
        assert float(bar.get("x1", "nan")) < dot <= float(bar.get("x2", "nan"))


@pytest.mark.parametrize("interval", [(0.981, 1.0), (0.9996, 1.0), (0.0, 0.004), (0.0, 1.0), (0.5, 0.501)])
def test_no_share_is_below_0_or_above_100_percent(interval: tuple[float, float]) -> None:
    root = parse(interval_chart("t", [IntervalRow("a", interval[0], interval, "c0")]))
    ticks = [float(str(e.text).rstrip("%")) for e in root.iter("text") if str(e.text).endswith("%")]
    assert len(ticks) > 2
    assert 0 <= min(ticks) <= 100 * interval[0]
    assert 100 * interval[1] <= max(ticks) <= 100


@given(
    st.lists(
        st.tuples(st.text("ab", min_size=1, max_size=12), st.floats(0, 560), st.floats(0, 260)), max_size=MOST_NAMES
    ),
    st.floats(LOWEST, HIGHEST),
)
def test_no_name_covers_another_or_leaves_the_chart(named: list[tuple[str, float, float]], height: float) -> None:
    names = [name for name, _, _ in named]
    before = [(x, y) for _, x, y in named]
    after = apart(names, before, height)
    assert [x for x, _ in after] == [x for x, _ in before]
    assert all(LINE / 2 - 1e-6 <= y <= height - LINE / 2 + 1e-6 for _, y in after)

    def free(i: int, places: list[tuple[float, float]]) -> bool:
        """Whether no other name covers the i-th."""
        (x, y), n = places[i], len(names[i])
        others = [(len(names[j]), *places[j]) for j in range(len(names)) if j != i]
        return all(abs(x - u) >= (n + m) * LETTER / 2 - 1e-6 or abs(y - v) >= LINE - 1e-6 for m, u, v in others)

    assert all(free(i, after) for i in range(len(names)))
    inside = all(LINE / 2 <= y <= height - LINE / 2 for _, y in before)
    if inside and all(free(i, before) for i in range(len(names))):
        assert [y for _, y in after] == pytest.approx([y for _, y in before])
