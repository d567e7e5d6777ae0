"""How a run is computed: threads, torch's settings, and memory that stays with the process."""

import ctypes
import os
import subprocess
import sys
from typing import Any

import pytest
import torch

from normatch.config import Config
from normatch.training import prepare
from normatch.training.runtime import LEAST_WORK, Runtime


@pytest.fixture
def config(tiny_config: Config) -> Config:
    return tiny_config.replace(device="cpu")


def printed(code: str, **environment: str) -> list[str]:
    """What code prints in a process of its own."""
    unset = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=unset | environment
    )
    return done.stdout.split()


@pytest.mark.parametrize(
    ("given", "variable", "work", "expected"),
    [
        (None, None, 0.0, 1),
        (None, None, LEAST_WORK, 3),
        (None, "3", 0.0, 3),
        (5, "3", 0.0, 5),
        (5, None, LEAST_WORK, 5),
    ],
)
def test_threads_follow_the_config_and_the_work_of_a_step(
    config: Config, monkeypatch: pytest.MonkeyPatch, given: int | None, variable: str | None, work: float, expected: int
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)  # as torch has it from the variable, or from the cores
    if variable:
        monkeypatch.setenv("OMP_NUM_THREADS", variable)
    assert Runtime.of(config.replace(threads=given)).with_threads(work).threads == expected


def test_small_networks_have_one_thread_and_larger_ones_several(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert prepare(config).runtime.threads == 1
    large = config.replace(batch=128, ratio=15)
    assert prepare(large).runtime.threads == 3
    assert prepare(large.replace(method="supervised")).runtime.threads == 1, "its step has a sixteenth of the images"


def test_idle_threads_sleep_unless_the_user_says_otherwise() -> None:
    code = "import normatch, os; print(os.environ['OMP_WAIT_POLICY'])"
    assert printed(code) == ["PASSIVE"]
    assert printed(code, OMP_WAIT_POLICY="ACTIVE") == ["ACTIVE"]


def test_the_callers_switches_are_put_back() -> None:
    runtime = Runtime.of(Config(device="cpu", deterministic=True))
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with runtime.scope():
            assert not torch.is_deterministic_algorithms_warn_only_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.skipif(not hasattr(torch.backends.mkldnn, "matmul"), reason="torch has no such switch before 2.9")
def test_a_precision_set_for_one_library_alone_is_put_back() -> None:
    matmul: Any = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    matmul.fp32_precision = "tf32"
    try:
        with Runtime.of(Config(device="cpu")).scope():
            assert matmul.fp32_precision == "ieee"
        assert matmul.fp32_precision == "tf32"
    finally:
        matmul.fp32_precision = before
    assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallopt"), reason="the allocator is not glibc's"
)
def test_memory_stays_with_a_run_and_goes_back_to_the_system_after_it() -> None:
    """In a process of its own: what else lives in this one decides where its heap ends."""
    anew, kept, freed = map(
        int,
        printed("""
import resource
import torch
from normatch.training.runtime import _kept_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        [torch.ones(2**20) for _ in range(8)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

print(faults())
with _kept_memory():
    faults()
    print(faults())
    held = [torch.ones(2**19) for _ in range(64)]
    del held
    within = resident()
print(within - resident())
"""),
    )
    assert kept < anew / 10
    assert freed > 50 * 1024**2
