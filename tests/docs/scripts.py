"""The scripts of ``benchmarks``, which are no package."""

import importlib.util
from pathlib import Path
from types import ModuleType

__all__ = ["BENCHMARKS", "load_script"]

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def load_script(name: str) -> ModuleType:
    """The script as a module of its own, whatever other tests have changed in theirs."""
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
