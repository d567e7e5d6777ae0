"""The torch device for a user's choice, and the hardware and versions that are stored with a measurement."""

import datetime
import importlib.util
import os
import platform
from pathlib import Path
from typing import Any, Literal

import torch

import normatch
from normatch.errors import UserError

__all__ = ["Device", "circumstances", "device_of", "stamp"]

Device = Literal["auto", "cpu", "cuda"]
"""The choices in a config or on the command line; :func:`device_of` also takes torch's names."""


def device_of(choice: str) -> torch.device:
    """The torch device for ``choice`` (auto, cpu, cuda, cuda:1, …); auto is the GPU if there is one, else the CPU."""
    has_cuda = torch.cuda.is_available()
    if choice == "auto":
        return torch.device("cuda" if has_cuda else "cpu")
    try:
        device = torch.device(choice)
    except RuntimeError:
        raise UserError(f"device is {choice!r}: choose 'auto', 'cpu' or 'cuda'") from None
    if device.type == "cuda" and not has_cuda:
        raise UserError(f"device is {choice!r}, but torch sees no GPU here: choose 'cpu' or 'auto'")
    return device


def circumstances() -> dict[str, Any]:
    """Machine, versions and date, to be stored with a measurement."""
    machine = {
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "cpu": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }
    return {"machine": machine} | stamp()


def stamp() -> dict[str, Any]:
    """Versions and date, for a result that states its hardware separately."""
    versions = {
        "normatch": normatch.__version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
    }
    if importlib.util.find_spec("triton") is not None:
        import triton

        versions["triton"] = triton.__version__
    return {"versions": versions, "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")}


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()
