"""Single items: those on which head and second classifier disagree most, and the most confident errors."""

from html import escape

from normatch.report.charts.svg import element
from normatch.report.findings import Findings, ShownItem
from normatch.report.markup import figure, share, table, words

__all__ = ["disputed", "errors"]

Pictures = dict[int, str]
"""Data URIs of the items shown, by number; empty for feature vectors or if the data could not be read."""

NO_CLASS = "–"
"""What a classifier says that finds several classes likeliest."""


def disputed(findings: Findings, pictures: Pictures) -> str | None:
    """How often both classifiers agree, their accuracies then and otherwise, and the most disputed items."""
    found = findings.agreement
    if found is None or findings.disputed is None:
        return None
    lead = f"Head and {findings.auxiliary} name the same class for {found.agree:,} of {found.n:,} {found.of}."
    if found.accuracy_agree is not None:
        lead += f" Where they agree, {share(found.accuracy_agree)} are right."
    if found.accuracy_disagree is not None:
        lead += f" Where they disagree, the head is right in {share(found.accuracy_disagree)}."
    if found.accuracy_auxiliary is not None:
        lead += f" Alone, the {findings.auxiliary} is right in {share(found.accuracy_auxiliary)}."
    if not findings.disputed:
        return words(lead)
    return words(lead) + _gallery(findings.disputed, pictures, "Disputed", findings.auxiliary)


def errors(findings: Findings, pictures: Pictures) -> str | None:
    """Wrong answers, the most confident first."""
    if findings.errors is None:
        return None
    if not findings.errors:
        return words("Every held-out item is classified correctly.")
    lead = "Wrong answers, the most confident first: hard items, wrong labels, or a class that was learned wrongly."
    return words(lead) + _gallery(findings.errors, pictures, "Wrong", findings.auxiliary)


def _gallery(cases: list[ShownItem], pictures: Pictures, kind: str, second: str | None) -> str:
    if not pictures:
        return _listed(cases, kind, second)
    return element("div", *(_card(case, pictures[case.item], kind, second) for case in cases), class_="gallery")


def _card(case: ShownItem, picture: str, kind: str, second: str | None) -> str:
    alt = escape(f"{kind} {case.file or f'item {case.item}'}: {_said(case, second)}")
    image = f'<img src="{picture}" alt="{alt}">'
    facts = element("dt", "head") + _claim(case.head, case.head_confidence)
    if case.auxiliary_confidence is not None:
        facts += element("dt", str(second))
        facts += _claim(case.auxiliary or NO_CLASS, case.auxiliary_confidence)
    if case.truth is not None:
        facts += element("dt", "truth") + element("dd", element("strong", escape(case.truth)))
    called = escape(case.file or f"item {case.item}")
    return element("figure", image, element("figcaption", called, element("dl", facts)))


def _claim(name: str, confidence: float) -> str:
    return element("dd", element("span", escape(name)), element("span", f"{confidence:.0%}"))


def _listed(cases: list[ShownItem], kind: str, second: str | None) -> str:
    head = ["item", "truth", "head", "confidence"]
    rows = [[case.file or str(case.item), case.truth or "–", case.head, share(case.head_confidence)] for case in cases]
    if any(case.auxiliary_confidence is not None for case in cases):
        head += [str(second), "confidence"]
        for row, case in zip(rows, cases, strict=True):
            row += [case.auxiliary or NO_CLASS, share(case.auxiliary_confidence)]
    return figure(f"{kind} items", table(f"{kind} items", head, rows))


def _said(case: ShownItem, second: str | None) -> str:
    said = f"the head says {case.head} ({case.head_confidence:.0%})"
    if case.auxiliary_confidence is not None:
        said += f", the {second} {case.auxiliary or NO_CLASS} ({case.auxiliary_confidence:.0%})"
    return said + (f", the truth is {case.truth}" if case.truth is not None else "")
