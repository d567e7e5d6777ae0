"""The HTML page of a comparison."""

from html import escape

from normatch.config import to_json
from normatch.report.charts import IntervalRow, Series, interval_chart, legend, line_chart
from normatch.report.charts.svg import element
from normatch.report.comparison import Comparison, shown
from normatch.report.markup import cards, figure, share, table, words
from normatch.report.page import shell

__all__ = ["comparison_page"]

DASHES = (None, "7 3", "2 3")
INKS = 10


def comparison_page(comparison: Comparison) -> str:
    """Accuracy with intervals, learning curves, paired tests and settings of several runs."""
    bodies = {
        ("accuracy", "Accuracy"): _accuracy(comparison),
        ("paired", "On the same test items"): _paired(comparison),
        ("settings", "Settings that differ"): _settings(comparison),
    }
    top = element(
        "header", element("div", element("h1", f"{len(comparison.runs)} runs side by side"), _lead(comparison))
    )
    sections = ((name, title, body) for (name, title), body in bodies.items())
    return shell("Comparison of runs", top, sections, to_json(comparison))


def _lead(comparison: Comparison) -> str:
    scored = [row for row in comparison.runs if row.accuracy is not None]
    if not scored:
        return words("None of them held out an item with a known class.", "lead")
    if not comparison.same_data:
        said = "They were trained on different data, so their accuracies cannot be compared."
        return words(said, "lead")
    best = max(scored, key=lambda row: row.accuracy or 0.0)
    names = " and ".join(row.name for row in scored if row.accuracy == best.accuracy)
    return element(
        "p",
        element("span", share(best.accuracy, best.n), class_="big"),
        element("span", escape(f"is the highest accuracy, reached by {names}"), class_="lead"),
        class_="accuracy",
    )


def _accuracy(comparison: Comparison) -> str:
    rows = [
        IntervalRow(row.name, row.accuracy, row.interval, _ink(i))
        for i, row in enumerate(comparison.runs)
        if row.accuracy is not None and row.interval is not None
    ]
    series = [
        Series(row.name, row.accuracies, _ink(i), DASHES[i // INKS % len(DASHES)])
        for i, row in enumerate(comparison.runs)
        if row.accuracies
    ]
    figures = []
    if rows:
        note = "A dot for each run, on its 95% interval (Wilson). It covers the choice of test items, not of seeds."
        figures.append(figure("Reached", interval_chart("Accuracy of the runs", rows), note=note))
    if series:
        chart = line_chart("Accuracy over training", series, shares=True)
        figures.append(
            figure("Over training", legend(series), chart, note="Held-out accuracy of the averaged weights.")
        )
    head = ["run", "method", "labels", "accuracy", "95% interval", "items", "steps", "seconds", "hardware"]
    listed = [
        [
            row.name,
            row.method,
            f"{row.labels:,}",
            share(row.accuracy, row.n),
            " to ".join(share(end, row.n) for end in row.interval) if row.interval else "–",
            f"{row.n:,} {row.evaluated_on}" if row.n else "–",
            f"{row.steps:,}",
            f"{row.seconds:,.0f}",
            row.hardware,
        ]
        for row in comparison.runs
    ]
    return cards(*figures) + figure("In numbers", table("Runs and what they reached", head, listed))


def _paired(comparison: Comparison) -> str:
    lead = (
        "Two runs that saw the same test items are compared item by item, which is sharper than comparing intervals: "
        "items that both have right or wrong do not count. p is McNemar's exact test, for each pair separately; "
        "with many pairs some are below 0.05 by chance."
    )
    head = ["first run", "second run", "items", "only first right", "only second right", "p"]
    rows = [
        [match.first, match.second, f"{match.n:,}", f"{match.won:,}", f"{match.lost:,}", f"{match.p:.2g}"]
        if match.p is not None
        else [match.first, match.second, f"not comparable: {match.why_not}", "–", "–", "–"]
        for match in comparison.matches
    ]
    return words(lead) + figure("Pairs", table("Paired comparisons", head, rows))


def _settings(comparison: Comparison) -> str:
    if not comparison.settings:
        return words("There are none: the runs were configured alike.")
    head = ["field", *(row.name for row in comparison.runs)]
    rows = [[field, *map(shown, values)] for field, values in comparison.settings.items()]
    note = "Fields that are equal in all runs whose method has them are left out."
    return figure("Fields of the configs", table("Settings that differ", head, rows), note=note)


def _ink(i: int) -> str:
    return f"c{i % INKS}"
