"""Reports: an HTML page on a finished run, and a comparison of several runs."""

from normatch.report.compare import compare, describe, write_comparison
from normatch.report.findings import next_steps
from normatch.report.page import numbers_of, write_report

__all__ = ["compare", "describe", "next_steps", "numbers_of", "write_comparison", "write_report"]
