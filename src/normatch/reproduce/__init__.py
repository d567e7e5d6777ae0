"""Reproduce the paper's tables and figures by one command: plans, runs, results as JSON, and a page made from them."""
