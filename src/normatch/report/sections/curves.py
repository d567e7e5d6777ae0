"""Training curves: losses, accuracy, and the quality of pseudo-labels (Figures 3 and 4 of the paper)."""

from normatch.report.charts import Series, legend, line_chart
from normatch.report.findings import Findings
from normatch.report.markup import cards, figure, words
from normatch.training.metrics import HIGH_CONFIDENCE

__all__ = ["FIGURE_3", "FIGURE_4", "learning", "pseudo_labels"]

LOSSES = {
    "loss": "all losses",
    "loss/labelled": "labelled images",
    "loss/unlabelled": "pseudo-labelled images",
    "loss/auxiliary": "{second} on labelled images",
    "loss/density": "likelihood of features",
    "loss/auxiliary_pseudo": "{second} on pseudo-labels",
}
INKS = ("text", "blue", "red", "green", "grey", "brown")

FIGURE_3 = {
    "pseudo/trusted": ("trusted", "blue", None),
    "pseudo/confident": (f"confidence above {HIGH_CONFIDENCE:g}", "green", "6 3"),
    "pseudo/correct": ("correct", "red", None),
}
FIGURE_4 = {
    "pseudo/accuracy_trusted": ("accuracy of the trusted", "blue", None),
    "pseudo/accuracy_distrusted": ("accuracy of the distrusted", "red", None),
    "pseudo/accuracy_confident": (f"accuracy above {HIGH_CONFIDENCE:g}", "green", "6 3"),
    "pseudo/weight_distrusted": ("weight of the distrusted", "text", None),
    "pseudo/uncertainty": ("uncertainty of the head", "grey", "2 3"),
    "pseudo/uncertainty_auxiliary": ("uncertainty of the {second}", "brown", "2 3"),
}


def learning(findings: Findings) -> str | None:
    """Losses and held-out accuracy over the steps."""
    losses = [
        Series(_named(LOSSES.get(name, name.removeprefix("loss/")), findings), curve, INKS[i % len(INKS)])
        for i, (name, curve) in enumerate((n, c) for n, c in findings.curves.items() if n.split("/")[0] == "loss")
    ]
    accuracy = [
        Series(f"{name.split('/')[0]} accuracy", findings.curves[name], ink)
        for name, ink in (("test/accuracy", "blue"), ("validation/accuracy", "red"))
        if name in findings.curves
    ]
    figures = []
    if accuracy:
        note = "Accuracy of the averaged weights, which are the ones saved. It is reported only and selected nothing."
        chart = line_chart("Accuracy over training", accuracy, shares=True)
        figures.append(figure("Accuracy", legend(accuracy), chart, note=note))
    if any(series.known for series in losses):
        note = "The minimised loss and its parts, including their weights and ramps."
        figures.append(figure("Loss", legend(losses), line_chart("Loss over training", losses, low=0), note=note))
    return cards(*figures) if figures else None


def pseudo_labels(findings: Findings) -> str | None:
    """Figures 3 and 4 for this run."""
    third, fourth = (_series(findings, names) for names in (FIGURE_3, FIGURE_4))
    if not third:
        return None
    figures = [
        figure(
            "How many are trusted (Figure 3)",
            legend(third),
            line_chart(
                "Shares of pseudo-labels that are trusted, confident and correct", third, shares=True, low=0, high=1
            ),
            note="Shares of all pseudo-labels. Ideally those that are correct are trusted, and no others.",
        ),
        figure(
            "How good they are (Figure 4)",
            legend(fourth),
            line_chart("Accuracy, weight and uncertainty of pseudo-labels", fourth, shares=True, low=0, high=1),
            note="Trusted ones should be right; distrusted ones, which are often wrong, should have little weight.",
        ),
    ]
    lead = "The pseudo-label of an unlabelled image is the class predicted for its weakly augmented view. "
    if findings.auxiliary is not None:
        lead += (
            f"It is fully trusted if head and {findings.auxiliary} name the same class; otherwise its weight is lower."
        )
    elif "threshold" in findings.config["settings"]:
        lead += "It is trusted if its confidence reaches the method's threshold; otherwise it is not used."
    else:
        lead += f"Which of them are trusted is a rule of {findings.method}."
    if not any(series.name == "correct" for series in third):
        lead += " The true classes of the unlabelled images are not known, so the curves that need them are missing."
    elif findings.learnt is not None:
        lead += (
            f" Only the {findings.learnt:,} of these images whose labels are trained on have a known class: the "
            "shares correct and the accuracies are measured on them alone, and are too optimistic."
        )
    return words(lead) + cards(*figures)


def _series(findings: Findings, names: dict[str, tuple[str, str, str | None]]) -> list[Series]:
    series = [
        Series(_named(name, findings), findings.curves[key], ink, dash)
        for key, (name, ink, dash) in names.items()
        if key in findings.curves
    ]
    return [s for s in series if s.known]


def _named(name: str, findings: Findings) -> str:
    return name.replace("{second}", findings.auxiliary or "second classifier")
