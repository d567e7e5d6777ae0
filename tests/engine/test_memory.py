"""A step's memory stays with the process while a run lasts, and goes back to the system after it."""

import ctypes
import resource
import subprocess
import sys

import pytest
import torch

from normatch.engine.memory import kept_memory

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallopt"), reason="the allocator is not glibc's"
)


def faults(steps: int = 50) -> int:
    """Pages mapped while tensors of 2 MB are made and freed."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(steps):
        held = [torch.ones(2**19) for _ in range(8)]
        del held
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def test_no_page_is_mapped_twice() -> None:
    with kept_memory():
        faults(2)
        within = faults()
    assert within < 100
    assert faults() > 10_000


def test_memory_goes_back_to_the_system() -> None:
    # In a process of its own: what else lives in this one decides where its heap ends.
    code = """
import torch
from normatch.engine.memory import kept_memory

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

with kept_memory():
    held = [torch.ones(2**19) for _ in range(64)]
    del held
    within = resident()
print(within - resident())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 100 * 1024**2
