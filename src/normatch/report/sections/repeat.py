"""What was run, and how to run it again."""

from html import escape

from normatch.config import flat
from normatch.report.charts.svg import element
from normatch.report.findings import Findings
from normatch.report.markup import table, words
from normatch.text import counted

__all__ = ["left_out", "repeat"]


def repeat(findings: Findings) -> str:
    """The command, the machine, the versions and every field of the config."""
    result = findings.result
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    said = (
        f"Trained with seed {result['seed']} on {result['hardware']} ({versions}), finished {result['date']}. "
        "With these versions on such hardware the command below trains it again, "
        + ("bit for bit." if result["hardware"].startswith("CPU") else "bit for bit if --deterministic was on.")
    )
    skipped = result.get("skipped") or []
    lost = words(f"Skipped: {counted(len(skipped), 'unreadable image')}, listed in result.json.") if skipped else ""
    rows = [[name, "–" if value is None else str(value)] for name, value in flat(findings.config).items()]
    config = element(
        "details",
        element("summary", f"The whole config ({len(rows)} fields)"),
        table("Fields of the config", ["field", "value"], rows, prose=True),
    )
    command = element("pre", element("code", escape(findings.command)), tabindex="0")
    return words(said) + command + lost + config


def left_out(findings: Findings, titles: dict[str, str]) -> str | None:
    """The parts that are not on this page, with the reasons."""
    if not findings.left_out:
        return None
    by_reason: dict[str, list[str]] = {}
    for name, why in findings.left_out.items():
        by_reason.setdefault(why, []).append(titles[name])
    entries = (
        element("li", element("strong", escape(", ".join(names))), f": {escape(why)}")
        for why, names in by_reason.items()
    )
    return element("ul", *entries)
