"""The top of the page: the accuracy with its interval, and the main facts of the run."""

from html import escape

from normatch.report.charts import IntervalRow, interval_chart
from normatch.report.charts.svg import element
from normatch.report.findings import Findings
from normatch.report.markup import share, words

__all__ = ["headline", "warnings"]


def headline(findings: Findings) -> str:
    """Name, accuracy with its interval, and facts."""
    head = element("h1", escape(findings.name), element("span", escape(findings.method), class_="method"))
    return element("header", element("div", head, _score(findings), class_="score"), _facts(findings))


def _score(findings: Findings) -> str:
    if findings.accuracy is None or findings.interval is None:
        return words("No item with a known class was held out, so there is no accuracy to report.", "lead")
    low, high = (share(end, findings.n) for end in findings.interval)
    big = element("span", share(findings.accuracy, findings.n), class_="big")
    said = f"of {findings.n:,} held-out {findings.evaluated_on} items are classified correctly"
    row = IntervalRow("", findings.accuracy, findings.interval, "blue")
    return (
        element("p", big, element("span", escape(said), class_="lead"), class_="accuracy")
        + words(f"95% interval: {low} to {high} (Wilson)", "soft")
        + interval_chart("Accuracy and its 95% interval", [row])
    )


def _facts(findings: Findings) -> str:
    result, config = findings.result, findings.config
    facts = {
        "Data": config["data"],
        "Labels used": f"{result['labels']:,}",
        "Classes": f"{len(findings.classes):,}",
        "Backbone": config["backbone"],
        "Steps": f"{result['steps']:,}",
        "Time": _duration(result["seconds"]),
        "Hardware": result["hardware"],
        "Seed": str(result["seed"]),
        "Finished": result["date"].replace("T", " ").replace("+00:00", " UTC"),
    }
    return element(
        "dl",
        *(element("div", element("dt", escape(name)), element("dd", escape(fact))) for name, fact in facts.items()),
        class_="facts",
    )


def warnings(findings: Findings) -> str | None:
    """The warnings raised during training."""
    if not findings.warnings:
        return None
    entries = (
        element(
            "li",
            element("strong", escape(str(warning.get("name", "warning")))),
            escape(f" at step {warning['step']}: " if warning.get("step") is not None else ": "),
            escape(str(warning.get("message", ""))),
            element("p", escape(str(warning["remedy"])), class_="soft") if warning.get("remedy") else "",
        )
        for warning in findings.warnings
    )
    return element("ul", *entries, class_="warnings")


def _duration(seconds: float) -> str:
    """Seconds as text, in seconds, minutes or hours.

    >>> _duration(35.2), _duration(4000)
    ('35 s', '1 h 7 min')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
