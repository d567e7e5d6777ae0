"""The command line: a module per verb, each with a ``main`` that takes the verb's arguments."""

from normatch.cli.main import main

__all__ = ["main"]
