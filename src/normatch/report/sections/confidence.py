"""Whether the confidences mean what they say."""

from normatch.evaluate.calibration import COLDEST, HOTTEST
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
        "Bars are how many of the answers of a confidence are right, orange ticks how many should be. A bar below its "
        "tick is overconfident, one above it too modest. ECE is the mean distance of the two over all items."
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
                note=f"Temperature {at}: above 1 the model was too sure, below 1 too modest." + _at_the_edge(found),
            )
        )
    return words(lead) + cards(*figures) + words(found.how, "soft")


def _at_the_edge(found: Calibration) -> str:
    if all(1.01 * COLDEST < t < 0.99 * HOTTEST for t in found.temperatures):
        return ""
    return " The edge of the range looked at was reached: these items cannot tell."
