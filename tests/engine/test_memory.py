"""A step's memory stays with the process while a run lasts, and goes back to the system after it."""

import ctypes
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallopt"), reason="the allocator is not glibc's"
)


def printed(code: str) -> list[int]:
    """What code prints in a process of its own: what else lives in this one decides where its heap ends."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return list(map(int, done.stdout.split()))


def test_no_page_is_mapped_twice() -> None:
    within, after = printed("""
import resource
import torch
from normatch.engine.memory import kept_memory

def faults(steps=50):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(steps):
        held = [torch.ones(2**18) for _ in range(8)]  # less than a huge page, which is one fault
        del held
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

with kept_memory():
    faults(2)
    print(faults())
print(faults())
""")
    assert within < 100
    assert after > 10_000


def test_memory_goes_back_to_the_system() -> None:
    (freed,) = printed("""
import torch
from normatch.engine.memory import kept_memory

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

with kept_memory():
    held = [torch.ones(2**19) for _ in range(64)]
    del held
    within = resident()
print(within - resident())
""")
    assert freed > 100 * 1024**2
