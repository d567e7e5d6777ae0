"""What tests of Triton kernels share: they run on a GPU, or anywhere in Triton's interpreter (TRITON_INTERPRET=1)."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch

__all__ = ["DEVICE", "INTERPRETED", "must_pass_interpreted", "needs_gpu", "needs_kernels", "needs_triton"]

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton, which is not installed")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
needs_kernels = pytest.mark.skipif(
    find_spec("triton") is None or not (INTERPRETED or torch.cuda.is_available()),
    reason="needs Triton, and a GPU or TRITON_INTERPRET=1",
)


def must_pass_interpreted(file: str) -> None:
    """Run the tests of a file once more, its kernels in the interpreter."""
    command = [sys.executable, "-m", "pytest", file, "-q", "-p", "no:cacheprovider"]
    environment = os.environ | {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "passed" in run.stdout
