"""Calibration: whether confidences match accuracies."""

from normatch.evaluate.metrics import COLDEST, HOTTEST
from normatch.report.charts import reliability_chart
from normatch.report.findings import Calibration, Findings
from normatch.report.markup import cards, figure, words

__all__ = ["calibration"]


def calibration(findings: Findings) -> str | None:
    """Reliability before and after temperature scaling, each with its expected calibration error."""
    found = findings.calibration
    if found is None:
        return None
    lead = (
        "Bars show the share of right answers at each confidence, orange ticks the share that it promises. A bar below "
        "its tick is overconfident, one above it underconfident. ECE is the mean distance of the two over all items."
    )
    figures = [
        figure(
            f"As trained: ECE {found.error_before:.1%}",
            reliability_chart("Reliability of the confidences as trained", found.before),
            note="Temperature 1: the probabilities that the model gives.",
        )
    ]
    if found.after is not None:
        at = " and ".join(f"{t:.2f}" for t in found.temperatures)
        figures.append(
            figure(
                f"After temperature scaling: ECE {found.error_after:.1%}",
                reliability_chart("Reliability after temperature scaling", found.after),
                note=f"Temperature {at}: above 1 if the model was overconfident, else below." + _limit_note(found),
            )
        )
    return words(lead) + cards(*figures) + words(found.how, "soft")


def _limit_note(found: Calibration) -> str:
    if all(1.01 * COLDEST < t < 0.99 * HOTTEST for t in found.temperatures):
        return ""
    return " The fit reached the limit of its range: these items do not determine the temperature."
