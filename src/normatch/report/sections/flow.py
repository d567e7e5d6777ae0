"""The latent space of the flow: where the classes lie in it."""

from normatch.report.charts import class_legend, latent_chart
from normatch.report.findings import Findings
from normatch.report.markup import figure

__all__ = ["latents"]


def latents(findings: Findings) -> str | None:
    """Latents g = f(z) in their first two principal components."""
    found = findings.latents
    if found is None:
        return None
    chart = latent_chart(
        found.points, found.labels, found.items, found.centres, found.means, found.scales, findings.classes
    )
    first, second = found.explained
    note = (
        f"{len(found.points):,} {found.of}, coloured by {found.coloured_by}, in the first two principal "
        f"components of the latents ({first:.0%} and {second:.0%} of the variance). Names stand near the mean of "
        "their items; crosses are the means of the flow's Gaussians, circles one standard deviation."
    )
    return figure("Where the flow puts the items", class_legend(findings.classes), chart, note=note, class_="beside")
