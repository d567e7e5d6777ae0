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


def test_blocks_of_a_step_come_from_the_heap_and_are_not_mapped() -> None:
    before, within = printed("""
import ctypes
import torch
from normatch.training.memory import kept_memory

class Counts(ctypes.Structure):  # struct mallinfo; the fourth number is that of mapped blocks
    _fields_ = [(str(place), ctypes.c_int) for place in range(10)]

mallinfo = ctypes.CDLL(None).mallinfo
mallinfo.restype = Counts

def mapped():
    before = getattr(mallinfo(), "3")
    held = [torch.ones(2**18) for _ in range(64)]
    return getattr(mallinfo(), "3") - before

print(mapped())
with kept_memory():
    print(mapped())
""")
    assert before > 32  # the others found room between what the heap holds
    assert within == 0


def test_blocks_are_not_mapped_anew_after_it() -> None:
    (faults,) = printed("""
import resource
import torch
from normatch.training.memory import kept_memory

with kept_memory():
    pass
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(200):
    torch.ones(250_000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
""")
    assert faults < 10_000  # of 48,800 if each block were mapped anew


def test_memory_goes_back_to_the_system() -> None:
    (freed,) = printed("""
import torch
from normatch.training.memory import kept_memory

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

with kept_memory():
    held = [torch.ones(2**19) for _ in range(64)]
    del held
    within = resident()
print(within - resident())
""")
    assert freed > 100 * 1024**2
