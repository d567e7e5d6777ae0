"""Reproduce the paper: its tables as data, one resumable loop that trains what they need, pages from the results."""
