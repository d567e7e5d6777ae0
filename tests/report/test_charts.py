"""Charts: every value at its place, for whatever values there are."""

import math
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from normatch.metrics import reliability
from normatch.report import charts
from normatch.report.charts import IntervalRow, Series, line_chart

finite = st.floats(-1e9, 1e9, allow_subnormal=False)


def parse(svg: str) -> ElementTree.Element:
    root = ElementTree.fromstring(svg)
    assert (root.tag, root.get("role")) == ("svg", "img")
    assert root.get("aria-label")
    assert [child.tag for child in list(root)[:2]] == ["title", "desc"]
    assert "nan" not in svg
    return root


def values(root: ElementTree.Element, tag: str, name: str, class_: str | None = None) -> list[float]:
    """An attribute of all elements of a kind."""
    return [float(e.get(name, "nan")) for e in root.iter(tag) if class_ in (None, e.get("class"))]


@given(finite, finite, st.integers(2, 8))
def test_ticks_are_even_round_and_enclose(a: float, b: float, about: int) -> None:
    low, high = min(a, b), max(a, b)
    if 0 < high - low < 1e-6 * max(abs(low), abs(high)):
        return
    found = charts.ticks(low, high, about)
    step = found[1] - found[0]
    tolerance = 1e-6 * max(step, abs(low), abs(high))
    assert found[0] <= low + tolerance
    assert found[-1] >= high - tolerance
    assert 2 <= len(found) <= 2 * about + 2
    assert np.diff(found) == pytest.approx([step] * (len(found) - 1), rel=1e-3, abs=tolerance)
    leading = step / 10 ** math.floor(math.log10(step * (1 + 1e-9)))
    assert min(abs(leading - m) for m in (1, 2, 5)) < 0.01


def test_lines_break_where_nothing_was_counted() -> None:
    series = Series("a & b", [(1, 0.0), (2, None), (3, 0.5), (4, 1.0)], "blue", "2 3")
    root = parse(line_chart("Title <1>", [series], shares=True, low=0, high=1))
    (path,) = root.iter("path")
    assert re.sub(r"[^ML]", "", path.get("d", "")) == "MML"
    heights = values(root, "circle", "cy")
    assert np.diff(heights) == pytest.approx([(heights[2] - heights[0]) / 2] * 2)
    assert heights[0] > heights[2]
    assert "a & b: 0% at step 1, 100% at step 4." in (root.findtext("desc") or "")


def must_enclose(root: ElementTree.Element, low: float, high: float) -> None:
    """Its axis of percentages has the shares low … high, and stays within 0 and 100%."""
    found = [float(str(e.text).rstrip("%")) for e in root.iter("text") if str(e.text).endswith("%")]
    assert len(found) > 2
    assert 0 <= min(found) <= 100 * low + 0.1
    assert 100 * high - 0.1 <= max(found) <= 100


@given(st.floats(0, 1), st.integers(1, 3))
def test_the_axis_of_a_constant_share_stays_within_0_and_100_percent(share: float, evaluations: int) -> None:
    points = [(float(step), share) for step in range(1, evaluations + 1)]
    must_enclose(parse(line_chart("t", [Series("test accuracy", points, "blue")], shares=True)), share, share)


@pytest.mark.parametrize("classes", [2, 17, 41])
def test_the_matrix_has_a_cell_for_each_count(classes: int) -> None:
    table = np.random.default_rng(classes).integers(0, 3, (classes, classes))
    table[0], table[1, 1] = 0, 3
    root = parse(charts.matrix_chart(table.tolist(), [f"class {k}" for k in range(classes)]))
    right, wrong = (values(root, "rect", "fill-opacity", name) for name in ("right", "wrong"))
    assert len(right) == np.count_nonzero(np.diag(table))
    assert len(wrong) == np.count_nonzero(table) - len(right)
    assert 0 <= min(right + wrong) <= max(right + wrong) <= 1


def test_reliability_draws_bars_of_bins_that_have_samples() -> None:
    bins = reliability(np.array([0.31, 0.95, 0.99]), np.array([False, True, True]))
    root = parse(charts.reliability_chart("t", bins))
    assert values(root, "rect", "height", "bar") == [1, 200]
    assert len(values(root, "line", "x1", "claim")) == 2


def test_latents_keep_one_scale_for_both_axes() -> None:
    points = [(0.0, 0.0), (10.0, 0.0), (0.0, 4.0)]
    found = {"points": points, "labels": [0, 1, 11], "samples": [5, 6, 7], "centres": [*points[:2], *[None] * 10]}
    root = parse(charts.latent_chart(found | {"means": points * 4, "scales": [1.0] * 12}, ["c"] * 12))
    marks = [p.get("transform", "") for p in root.iter("path") if p.get("class") == "point"]
    (ax, ay), (bx, by), (cx, cy) = (map(float, re.findall(r"-?[\d.]+", mark)) for mark in marks)
    assert (bx - ax) / 10 == pytest.approx((ay - cy) / 4, abs=0.05)
    assert (ay, ax) == (by, cx)
    assert values(root, "circle", "r")[0] == pytest.approx((bx - ax) / 10, abs=0.1)
    one = [(1.0, 1.0)]
    same = {"points": one, "labels": [0], "samples": [1], "centres": one, "means": one, "scales": [1.0]}
    parse(charts.latent_chart(same, ["a"]))


def test_bars_are_as_long_as_their_shares() -> None:
    root = parse(
        charts.bar_chart("t", ["a", "b" * 50], {"first": ("blue", [0.2, 0.4]), "second": ("grey", [0.1, 0.0])})
    )
    lengths = values(root, "rect", "width")
    assert [length / lengths[1] for length in lengths] == pytest.approx([0.5, 1, 0.25, 0], abs=0.01)


@pytest.mark.parametrize("interval", [(0.9996, 1.0), (0.0, 0.004), (0.5, 0.501)])
def test_intervals_enclose_their_dot_within_0_and_100_percent(interval: tuple[float, float]) -> None:
    root = parse(charts.interval_chart("t", [IntervalRow("a", sum(interval) / 2, interval, "c0")]))
    (dot,) = values(root, "circle", "cx")
    ends = [*values(root, "line", "x1", "interval"), *values(root, "line", "x2", "interval")]
    assert (ends[0] + ends[1]) / 2 == pytest.approx(dot, abs=0.1)
    must_enclose(root, *interval)


@given(
    st.lists(st.tuples(st.text("ab", min_size=1, max_size=12), st.floats(0, 560), st.floats(0, 260)), max_size=12),
    st.floats(260, 460),
)
def test_no_name_covers_another_or_leaves_the_chart(named: list[tuple[str, float, float]], height: float) -> None:
    names, before = [name for name, _, _ in named], [(x, y) for _, x, y in named]
    after = charts.apart(names, before, height, letter=9.5, row=17)
    assert [x for x, _ in after] == [x for x, _ in before]
    assert all(8.5 - 1e-6 <= y <= height - 8.5 + 1e-6 for _, y in after)

    def free(places: list[tuple[float, float]]) -> bool:
        """Whether no name covers another."""
        each = [(len(name), x, y) for name, (x, y) in zip(names, places, strict=True)]
        pairs = ((a, b) for i, a in enumerate(each) for b in each[:i])
        return all(abs(x - u) >= (n + m) * 9.5 / 2 - 1e-6 or abs(y - v) >= 17 - 1e-6 for (n, x, y), (m, u, v) in pairs)

    assert free(after)
    if free(before) and all(8.5 <= y <= height - 8.5 for _, y in before):
        assert [y for _, y in after] == pytest.approx([y for _, y in before])
