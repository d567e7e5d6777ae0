"""The parts of a report's page: each a function from findings to markup, or None where there is nothing to show."""
