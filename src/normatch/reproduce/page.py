"""The page of results: for each table and figure the paper's numbers, ours, and the files with our results."""

import statistics
from collections.abc import Callable, Sequence

from normatch.reproduce.fill import Answer, Filled
from normatch.reproduce.paper import ANALYSIS, Cell, Measure, Score, Study
from normatch.reproduce.pictures import Drawing
from normatch.reproduce.results import Result
from normatch.text import aligned, markdown, percent

__all__ = ["Linked", "plain", "relative", "section", "table"]

Linked = Callable[[Result], str]
"""Returns the link to a result's file, relative to the page."""

MEASURES: dict[Measure, str] = {
    "accuracy": "accuracy",
    "confident": "confident",
    "weights": "weights (M)",
    "products": "multiply-adds (M)",
}


def section(filled: Filled, linked: Linked, drawing: Drawing | None = None) -> str:
    """A study in Markdown. Cells without a run stay visibly empty."""
    study, stand_in = filled.study, filled.stand_in
    parts = [f"### {_title(filled)}"]
    if stand_in:
        compared = any(gain.paper is not None for gain in filled.gains())
        paper = "only gains are compared with the paper's" if compared else "no accuracy here is the paper's"
        parts.append(f"{study.about} Trained on {stand_in} with its own schedule; {paper}.")
    else:
        protocol = f"{ANALYSIS}." if study.movable else ""
        parts.append(" ".join(filter(None, [protocol, study.about, study.of_paper])))
    if drawing is not None:
        parts += [f"![{drawing.title}]({drawing.path})", drawing.said]
    parts.append(markdown(table(filled, linked)))
    if filled.gains():
        parts += [f"Over “{study.rows[0].name}”, label seed by label seed:", markdown(_gain_table(filled))]
    made_on = _made_on(filled)
    if made_on:
        parts.append(made_on)
    alone = _paper_alone(study)
    if alone and not stand_in:
        parts += ["In the paper alone:", markdown(alone)]
    return "\n\n".join(parts) + "\n"


def plain(filled: Filled) -> str:
    """A study as text for a terminal."""
    rows = [row[:-1] for row in table(filled, lambda result: "")]
    lines = [_title(filled), *aligned(rows)]
    if filled.gains():
        lines += ["", f"over “{filled.study.rows[0].name}”, label seed by label seed", *aligned(_gain_table(filled))]
    return "\n".join(lines)


def table(filled: Filled, linked: Linked) -> list[list[str]]:
    """A header, and a line for each cell that this package can answer and each number of steps that was run."""
    study, stand_in = filled.study, filled.stand_in
    several = len(study.columns) > 1
    head = ["", *(["data, labels"] if several else [])]
    for measure in study.measures:
        name = "" if len(study.measures) == 1 else f"{MEASURES[measure]}, "
        head += [f"{name}ours"] if stand_in else [f"{name}paper", f"{name}ours"]
    difference = [] if stand_in else ["ours − paper"]
    lines = [[*head, *difference, "n", "steps", "of the schedule", "each label seed"]]
    for row in filled.rows:
        for column, cell in zip(study.columns, row.cells, strict=True):
            if cell.trial is None:
                continue
            names = [row.name, column] if several else [row.name]
            found: list[Answer | None] = [*filled.answers(cell.trial)] or [None]
            lines += [names + _line(study.measures, cell, answer, linked, stand_in) for answer in found]
    return lines


def relative(folder: str) -> Linked:
    """Links to the files in ``folder``, a path relative to the page."""
    return lambda result: f"{folder}/{result.path.name}"


def _line(
    measures: Sequence[Measure], cell: Cell, answer: Answer | None, linked: Linked, stand_in: str | None
) -> list[str]:
    words = []
    for measure in measures:
        ours = [] if answer is None else answer.values(measure)
        words += [] if stand_in else [_score(cell.paper.get(measure))]
        words.append(_mean(ours, measure) if ours else "–")
    reached, paper = [] if answer is None else answer.values(), cell.paper.get("accuracy")
    if not stand_in:
        words.append(_signed(statistics.mean(reached) - paper.value) if paper and reached else "–")
    if answer is None:
        return [*words, "0", "–", "–", ""]
    failed = f", {answer.failed} failed" if answer.failed else ""
    share = percent(answer.steps / answer.whole)
    each = " ".join(_each(result, linked) for result in answer.results)
    return [*words, f"{len(reached)}{failed}", f"{answer.steps:,}", share, each]


def _each(result: Result, linked: Linked) -> str:
    reached = "failed" if result.failed or result.accuracy is None else f"{100 * result.accuracy:.2f}"
    return f"[{reached}]({linked(result)})"


def _gain_table(filled: Filled) -> list[list[str]]:
    paper = ["paper"] if filled.same_task else []
    lines = [["", *paper, "ours", "95 % interval of the mean", "n", "steps"]]
    for gain in filled.gains():
        spread = "" if gain.spread is None else f" ± {gain.spread:.2f}"
        theirs = ["–" if gain.paper is None else _signed(gain.paper)] if paper else []
        interval = "–" if gain.interval is None else " to ".join(map(_signed, gain.interval))
        ours = f"{_signed(gain.mean)}{spread}"
        lines.append([gain.row, *theirs, ours, interval, str(len(gain.each)), f"{gain.steps:,}"])
    return lines


def _paper_alone(study: Study) -> list[list[str]]:
    """The rows of methods that this package does not have."""
    rows = [row for row in study.rows if all(cell.trial is None for cell in row.cells)]
    head = ["", *(column or "accuracy" for column in study.columns)]
    lines = [[row.name, *(_score(cell.paper.get("accuracy")) for cell in row.cells)] for row in rows]
    return [head, *lines] if lines else []


def _score(score: Score | None) -> str:
    if score is None:
        return "–"
    return f"{score.value:.2f}" + ("" if score.spread is None else f" ± {score.spread:.2f}")


def _mean(values: Sequence[float], measure: Measure) -> str:
    digits = 3 if measure in ("weights", "products") else 2
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 and digits == 2 else ""
    return f"{statistics.mean(values):.{digits}f}{spread}"


def _title(filled: Filled) -> str:
    return filled.study.title + (f", with {filled.stand_in}" if filled.stand_in else "")


def _made_on(filled: Filled) -> str | None:
    """Where and when the runs of a study were trained."""
    trials = [cell.trial for row in filled.study.rows for cell in row.cells]
    used = [result for trial in trials for answer in filled.answers(trial) for result in answer.results]
    if not used:
        return None
    where = sorted({f"{result.hardware}, torch {result.torch}" for result in used})
    days = sorted({result.date[:10] for result in used})
    return f"Trained on {'; '.join(where)}; {days[0]}" + (f" to {days[-1]}." if len(days) > 1 else ".")


def _signed(number: float) -> str:
    # Adding 0.0 turns -0.0 into 0.0.
    return f"{round(number, 2) + 0.0:+.2f}".replace("-", "−")
