"""Tables and figures as text, Markdown and SVG: the paper's numbers, ours, and the files with our results."""

import statistics
from collections.abc import Sequence
from pathlib import Path

from normatch.files import replacing
from normatch.report.charts import FIGURE_3, FIGURE_4, Series, alone, line_chart
from normatch.reproduce.paper import Cell, Score, Study
from normatch.reproduce.results import Gain, Result, Runs, Table
from normatch.text import aligned, counted, markdown, percent

__all__ = ["plain", "section", "signed", "write_page"]

STATED = {
    "pseudo/trusted": "about 92",
    "pseudo/confident": "about 85",
    "pseudo/correct": "very near the trusted ones",
    "pseudo/accuracy_trusted": "about 93",
    "pseudo/accuracy_distrusted": "low",
    "pseudo/accuracy_confident": "about 93",
    "pseudo/weight_distrusted": "small",
    "pseudo/uncertainty": "lower than the flow's",
    "pseudo/uncertainty_auxiliary": "higher than the head's",
    "pseudo/weight": "not given",
}
"""What Section 4.2 states about the ends of the curves of Figures 3 and 4, in percent."""


def section(table: Table, results: str, pictures: Path) -> str:
    """A study in Markdown, with links to the files in the folder ``results``, as the page sees it; a figure is drawn
    into the folder ``pictures``. Cells without a run stay visibly empty. With more than two columns, a table as the
    paper has it comes first, and only what was run has lines of its own."""
    study = table.study
    protocol = "The paper has CIFAR-10 with 40 labels and 300 epochs. " if study.movable else ""
    parts = [f"## {study.title}", protocol + study.about]
    figure = {"figure3": FIGURE_3, "figure4": FIGURE_4}.get(study.name)
    if figure and (drawn := _curves(table, figure)):
        picture, said = drawn
        pictures.mkdir(parents=True, exist_ok=True)
        file = pictures / f"{study.name}.svg"
        with replacing(file) as part:
            part.write_text(picture + "\n", encoding="utf-8")
        parts += [f"![{study.title}]({pictures.name}/{file.name})", said]
    wide = len(study.columns) > 2
    if wide:
        parts += ["In brackets ours, where there is a run, with its share of the schedule."]
        parts += [markdown(_as_in_paper(table))]
    if len(lines := _lines(table, results, empty=not wide)) > 1:
        parts.append(markdown(lines))
    if gains := table.gains():
        parts += [f"Over “{study.rows[0].name}”, label seed by label seed:", markdown(_gain_lines(table, gains))]
    if made_on := _made_on(table):
        parts.append(made_on)
    return "\n\n".join(parts) + "\n"


def plain(table: Table) -> str:
    """A study as text for a terminal."""
    rows = [row[:-1] for row in _lines(table, "")]
    lines = [table.study.title, *aligned(rows)]
    if gains := table.gains():
        lines += ["", f"over “{table.study.rows[0].name}”, seed by seed", *aligned(_gain_lines(table, gains))]
    return "\n".join(lines)


def write_page(path: Path, title: str, sections: Sequence[str]) -> Path:
    """Write a page of sections."""
    with replacing(path) as part:
        part.write_text("\n".join([f"# {title}\n", *sections]), encoding="utf-8")
    return path


def signed(number: float) -> str:
    # Adding 0.0 turns -0.0 into 0.0.
    return f"{round(number, 2) + 0.0:+.2f}".replace("-", "−")


def _as_in_paper(table: Table) -> list[list[str]]:
    """The paper's accuracies, and in brackets ours of the longest runs: a line a row, with the study's columns."""
    lines = [["", *table.study.columns]]
    for row in table.study.rows:
        cells = [_score(cell.paper.get("accuracy")) for cell in row.cells]
        for j, cell in enumerate(row.cells):
            for runs in table.runs_of(cell.trial)[:1]:
                cells[j] += f" ({_mean(runs.values())}, {percent(runs.steps / runs.whole)})"
        lines.append([row.name, *cells])
    return lines


def _lines(table: Table, results: str, *, empty: bool = True) -> list[list[str]]:
    """A header, and a line for each cell and each number of steps that was run; for a cell without a run if ``empty``
    says so."""
    study = table.study
    names = _names(study)
    several = len(study.measures) > 1
    numbers = [f"{m}, {who}" if several else who for m in study.measures for who in ("paper", "ours")]
    lines = [[*names, *numbers, "ours − paper", "n", "steps", "of the schedule", "each label seed"]]
    for row in study.rows:
        for column, cell in zip(study.columns, row.cells, strict=True):
            found: list[Runs | None] = [*table.runs_of(cell.trial)]
            if empty and not found:
                found = [None]
            lines += [[row.name, column][: len(names)] + _line(study, cell, runs, results) for runs in found]
    return lines


def _names(study: Study) -> list[str]:
    return ["", "data, labels"] if len(study.columns) > 1 else [""]


def _line(study: Study, cell: Cell, runs: Runs | None, results: str) -> list[str]:
    words = []
    for measure in study.measures:
        words += [_score(cell.paper.get(measure)), _mean(runs.values(measure)) if runs else "–"]
    if runs is None:
        return [*words, "–", "0", "–", "–", ""]
    reached, paper = runs.values(), cell.paper.get("accuracy")
    # Less than the whole schedule says nothing about the paper's number.
    compared = signed(statistics.mean(reached) - paper.value) if runs.complete and paper else "–"
    diverged = sum(result.failed is not None for result in runs.results)
    n = f"{len(reached)}{f', {diverged} diverged' if diverged else ''}"
    each = " ".join(_each(result, results) for result in runs.results)
    return [*words, compared, n, f"{runs.steps:,}", percent(runs.steps / runs.whole), each]


def _each(result: Result, results: str) -> str:
    reached = "diverged" if result.failed or result.accuracy is None else f"{100 * result.accuracy:.2f}"
    return f"[{reached}]({results}/{result.path.name})"


def _gain_lines(table: Table, gains: Sequence[Gain]) -> list[list[str]]:
    names = _names(table.study)
    lines = [[*names, "paper", "ours", "95 % confidence interval", "n", "steps"]]
    for gain in gains:
        theirs = "–" if gain.paper is None else signed(gain.paper)
        interval = "–" if gain.interval is None else " to ".join(map(signed, gain.interval))
        numbers = [theirs, signed(gain.mean), interval, str(len(gain.each)), f"{gain.steps:,}"]
        lines.append([gain.row, gain.column][: len(names)] + numbers)
    return lines


def _score(score: Score | None) -> str:
    if score is None:
        return "–"
    return f"{score.value:.2f}" + ("" if score.spread is None else f" ± {score.spread:.2f}")


def _mean(values: Sequence[float]) -> str:
    if not values:
        return "–"
    return _score(Score(statistics.mean(values), statistics.stdev(values) if len(values) > 1 else None))


def _made_on(table: Table) -> str | None:
    """Where and when the runs of a study were trained."""
    every = [runs for row in table.study.rows for cell in row.cells for runs in table.runs_of(cell.trial)]
    used = [result for runs in every for result in runs.results]
    if not used:
        return None
    where = sorted({f"{result.hardware}, torch {result.torch}" for result in used})
    days = sorted({result.date[:10] for result in used})
    return f"Trained on {'; '.join(where)}; {days[0]}" + (f" to {days[-1]}." if len(days) > 1 else ".")


def _curves(table: Table, figure: dict[str, tuple[str, str, str | None]]) -> tuple[str, str] | None:
    """The curves of the first seed of the longest runs, and their ends next to what the paper states."""
    longest = table.longest()
    result = next((result for result in longest.results if not result.failed), None) if longest else None
    if result is None:
        return None
    names = {key: name.replace("{second}", "flow") for key, (name, _, _) in figure.items()}
    series = [Series(names[key], result.curves[key], *figure[key][1:]) for key in figure if key in result.curves]
    rows = [["at the end, percent", "paper", "ours"]]
    for key, name in (names | {"pseudo/weight": "mean weight τ"}).items():
        if (end := result.last(key)) is not None:
            rows.append([name, STATED[key] if table.study.movable else "–", f"{100 * end:.1f}"])
    said = f"Label seed {result.config.seed}, {counted(result.config.steps, 'step')}.\n\n{markdown(rows)}"
    return alone(line_chart(table.study.title, series, shares=True, low=0, high=1), series), said
