"""A finished run on one page, and runs side by side."""

from normatch.report.comparison import compare, describe
from normatch.report.write import numbers_of, write_comparison, write_report

__all__ = ["compare", "describe", "numbers_of", "write_comparison", "write_report"]
