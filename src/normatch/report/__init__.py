"""Reports: an HTML page on a finished run, and a comparison of several runs."""

from normatch.report.comparison import compare, describe
from normatch.report.write import numbers_of, write_comparison, write_report

__all__ = ["compare", "describe", "numbers_of", "write_comparison", "write_report"]
