"""Classes: balance of the pseudo-labels, confusion matrix, figures for each class."""

import numpy as np

from normatch.report.charts import bar_chart, matrix_chart
from normatch.report.charts.svg import element
from normatch.report.findings import Balance, Findings
from normatch.report.markup import cards, figure, share, table, words

__all__ = ["balance", "classes"]

MOST_BARS = 30
MOST_PAIRS = 8


def balance(findings: Findings) -> str | None:
    """How often each class is a pseudo-label, compared with the truth."""
    found = findings.balance
    if found is None:
        return None
    pseudo = np.array(found.pseudo) / found.n
    groups = {"pseudo-labels": ("blue", pseudo)}
    gap = pseudo
    if found.known:
        truth = np.array(found.truth) / found.known
        groups["truth"] = ("grey", truth)
        gap = np.abs(pseudo - truth)
    shown = np.sort(np.argsort(-gap, kind="stable")[:MOST_BARS])
    note = _balance_note(found)
    if len(shown) < len(findings.classes):
        note += f" Shown are the {MOST_BARS} classes with the largest {'difference' if found.known else 'share'}."
    chart = bar_chart(
        "Shares of classes among pseudo-labels",
        [findings.classes[k] for k in shown],
        {name: (ink, [float(values[k]) for k in shown]) for name, (ink, values) in groups.items()},
    )
    key = (
        element("li", element("span", class_="swatch"), name, style=f"--ink: var(--{ink})")
        for name, (ink, _) in groups.items()
    )
    shares = figure("Shares", element("ul", *key, class_="legend"), chart, note=note)
    return cards(shares, _counts(findings, found))


def _balance_note(found: Balance) -> str:
    looked = f"{found.n:,} unlabelled items" if found.n == found.of else f"{found.n:,} of {found.of:,} unlabelled items"
    note = f"Classes that the finished model gives to {looked}, without augmentation"
    if found.known == found.n:
        trouble = "A class with far too many pseudo-labels is absorbing others; one with far too few is being lost."
        return f"{note}, next to their true classes. {trouble}"
    if found.known:
        return f"{note}, next to the true classes of the {found.known:,} of them whose class is known."
    return f"{note}; their true classes are not known."


def _counts(findings: Findings, found: Balance) -> str:
    head = ["class", "pseudo-labels"] + ["truth"] * bool(found.known)
    columns = zip(findings.classes, found.pseudo, found.truth, strict=True)
    rows = [[name, f"{pseudo:,}", f"{truth:,}"][: len(head)] for name, pseudo, truth in columns]
    note = "Look at the most and the least frequent class first."
    return figure("Counts", table("Pseudo-labels and true labels of each class", head, rows), note=note)


def classes(findings: Findings) -> str | None:
    """The confusion matrix, the pairs most often confused, and precision, recall and F1 of each class."""
    if findings.confusion is None or findings.per_class is None:
        return None
    matrix = figure(
        "Confusion matrix",
        matrix_chart(findings.confusion, findings.classes),
        note="Rows are the truth, columns the answer. Right answers are blue, wrong ones orange; "
        "the strength is the share of the row.",
    )
    rows = [
        [c["name"], share(c["precision"]), share(c["recall"] if c["n"] else None), share(c["f1"]), f"{c['n']:,}"]
        for c in findings.per_class
    ]
    figures = figure(
        "Each class",
        table("Precision, recall, F1 and items of each class", ["class", "precision", "recall", "F1", "items"], rows),
        note="Precision: share of right answers among answers of the class. Recall: share of its items answered right.",
    )
    return cards(matrix, figures) + _pairs(findings)


def _pairs(findings: Findings) -> str:
    counts = np.array(findings.confusion)
    np.fill_diagonal(counts, 0)
    order = np.argsort(-counts, axis=None, kind="stable")[:MOST_PAIRS]
    pairs = [(i, j) for i, j in zip(*np.unravel_index(order, counts.shape), strict=True) if counts[i, j]]
    if not pairs:
        return ""
    names = findings.classes
    said = ", ".join(f"{names[i]} → {names[j]} ({counts[i, j]})" for i, j in pairs)
    return words(f"Most often confused, truth → answer (times): {said}.", "soft")
