"""Figures 3, 4 and 5 drawn from our runs, next to what the paper states about its own; learning curves of others."""

from dataclasses import dataclass
from pathlib import Path

from normatch.files import replacing
from normatch.report.charts import IntervalRow, Series, alone, interval_chart, line_chart
from normatch.report.sections.curves import FIGURE_3, FIGURE_4
from normatch.reproduce.fill import Answer, Filled
from normatch.text import counted, markdown

__all__ = ["Drawing", "draw"]

INKS = ("blue", "red", "green", "brown")
"""Of the curves of label seeds."""

SECOND = "flow"
"""Name of the second classifier in the legends."""

STATED = {
    "figure3": {
        "pseudo/trusted": "about 92",
        "pseudo/confident": "about 85",
        "pseudo/correct": "very near the trusted ones",
    },
    "figure4": {
        "pseudo/accuracy_trusted": "about 93",
        "pseudo/accuracy_distrusted": "low",
        "pseudo/accuracy_confident": "about 93",
        "pseudo/weight_distrusted": "small",
        "pseudo/uncertainty": "lower than the flow's",
        "pseudo/uncertainty_auxiliary": "higher than the head's",
    },
}
"""What Section 4.2 states about the ends of the curves, in percent."""


@dataclass(frozen=True)
class Drawing:
    """The file of a picture, its title, and its numbers in Markdown."""

    title: str
    path: str
    said: str


def draw(filled: Filled, folder: Path, seen_as: str) -> Drawing | None:
    """Draw a figure into ``folder``, to which the page refers as ``seen_as``; None for a table, or without results."""
    study, stand_in = filled.study, filled.stand_in
    file = f"{study.name}-{stand_in}.svg" if stand_in else f"{study.name}.svg"
    if study.name in STATED:
        made = _curves(filled)
    elif study.name == "figure5":
        made = _intervals(filled)
    elif study.name == "fast":
        made = _learning(filled)
    else:
        return None
    if made is None:
        return None
    picture, said = made
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / file) as part:
        part.write_text(picture + "\n", encoding="utf-8")
    return Drawing(study.title, f"{seen_as}/{file}", said)


def _curves(filled: Filled) -> tuple[str, str] | None:
    """The curves of the first seed of the longest runs, those of the first row in a tie, and their ends in a table."""
    study = filled.study
    found = [(row, answer) for row in filled.rows for answer in filled.answers(row.cells[0].trial)]
    found.sort(key=lambda pair: -pair[1].steps)
    ended = [(row, r) for row, answer in found for r in answer.results if r.failed is None]
    ended = [(row, r) for row, r in ended if "pseudo/trusted" in r.curves]
    if not ended:
        return None
    row, result = ended[0]
    series, rows = [], [["at the end, percent", "paper", "ours"]]
    for key, (name, ink, dash) in (FIGURE_3 if study.name == "figure3" else FIGURE_4).items():
        if key in result.curves:
            curve = Series(name.replace("{second}", SECOND), result.curves[key], ink, dash)
            series.append(curve)
            rows.append([curve.name, STATED[study.name][key], f"{100 * result.curves[key][-1][1]:.1f}"])
    if filled.stand_in:
        rows = [[name, ours] for name, _, ours in rows]
    said = f"{row.name}: label seed {result.seed}, {counted(result.config.steps, 'step')}.\n\n{markdown(rows)}"
    chart = line_chart(study.title, series, shares=True, low=0, high=1)
    return alone(chart, series), said


def _learning(filled: Filled) -> tuple[str, str] | None:
    """Test accuracy over the steps in the first row, a curve for each label seed of its longest runs, and where the
    paper's ends."""
    row = filled.study.rows[0]
    answer = next((found for found in filled.answers(row.cells[0].trial) if found.values()), None)
    if answer is None:
        return None
    ended = [result for result in answer.results if "test/accuracy" in result.curves and result.failed is None]
    if not ended:
        return None
    series = [
        Series(f"label seed {result.seed}", result.curves["test/accuracy"], INKS[i % len(INKS)])
        for i, result in enumerate(ended)
    ]
    paper = row.cells[0].paper["accuracy"].value / 100
    series.append(Series("the paper's, after 1024 epochs", [(0, paper), (answer.steps, paper)], "grey", "6 3"))
    minutes = [f"{result.seconds / 60:.1f}" for result in ended]
    said = (
        f"Test accuracy over {counted(answer.steps, 'step')} of the first row, label seed by label seed in "
        f"{', '.join(minutes)} minutes with evaluations."
    )
    return alone(line_chart(filled.study.title, series, shares=True, low=0, high=1), series), said


def _intervals(filled: Filled) -> tuple[str, str] | None:
    """Accuracy at each value of λ, at the number of steps for which most values have results (the larger in a tie)."""
    study = filled.study
    found = [(row, answer) for row in study.rows for answer in filled.answers(row.cells[0].trial)]
    steps = [answer.steps for _, answer in found if answer.values()]
    if not steps:
        return None
    chosen = max(set(steps), key=lambda n: (steps.count(n), n))
    rows = []
    for row in study.rows:
        answer = next((a for r, a in found if r is row and a.steps == chosen), None)
        if answer is not None and answer.values():
            rows.append(_interval(row.name, answer))
        paper = row.cells[0].paper.get("accuracy")
        if paper is not None and not filled.stand_in:
            rows.append(IntervalRow(f"{row.name}, paper", paper.value / 100, (paper.value / 100,) * 2, "grey"))
    said = f"{counted(chosen, 'step')}; a bar reaches from the worst label seed to the best, the dot is their mean."
    return alone(interval_chart(study.title, rows)), said


def _interval(name: str, answer: Answer) -> IntervalRow:
    shares = [value / 100 for value in answer.values()]
    return IntervalRow(name, sum(shares) / len(shares), (min(shares), max(shares)), "blue")
