"""The hardware, versions and date of a measurement, to be stored with it."""

import datetime
import importlib.util
import os
import platform
from pathlib import Path
from typing import Any

import torch

import normatch

__all__ = ["circumstances", "stamp"]


def circumstances() -> dict[str, Any]:
    """Machine, versions and date, to be stored with a measurement."""
    return {"machine": _hardware()} | stamp()


def stamp() -> dict[str, Any]:
    """Versions and date, for a result that states its hardware separately."""
    return {
        "versions": _versions(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def _hardware() -> dict[str, Any]:
    """The GPU that torch would use (None without one), the processor, its cores, and torch's threads."""
    return {
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "cpu": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }


def _versions() -> dict[str, str]:
    found = {
        "normatch": normatch.__version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
    }
    if importlib.util.find_spec("triton") is not None:
        import triton

        found["triton"] = triton.__version__
    return found


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()
