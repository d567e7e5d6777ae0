"""Charts as SVG text, drawn without a plotting library, so that a page is self-contained."""

from normatch.report.charts.alone import alone, chart_style
from normatch.report.charts.bars import IntervalRow, bar_chart, interval_chart
from normatch.report.charts.lines import Series, legend, line_chart
from normatch.report.charts.matrix import matrix_chart
from normatch.report.charts.reliability import reliability_chart
from normatch.report.charts.scatter import class_legend, latent_chart

__all__ = [
    "IntervalRow",
    "Series",
    "alone",
    "bar_chart",
    "chart_style",
    "class_legend",
    "interval_chart",
    "latent_chart",
    "legend",
    "line_chart",
    "matrix_chart",
    "reliability_chart",
]
