"""The pages on labels, resuming and GPUs, followed as they stand."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str) -> list[tuple[str, str]]:
    """(language, code) of a page's blocks of code, in order."""
    return re.findall(r"^```(\w+)\n(.*?)^```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def start(code: str, here: Path, language: str = "sh") -> "subprocess.Popen[str]":
    command = here / "bin" / "normatch"
    if not command.exists():
        command.parent.mkdir()
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -W error -m normatch "$@"\n')
        command.chmod(0o755)
    argv = ["sh", "-euc", code] if language == "sh" else [sys.executable, "-c", code]
    env = os.environ | {"PATH": f"{command.parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        argv, cwd=here, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )


def follow(page: str, here: Path) -> str:
    said = ""
    for language, code in blocks(page):
        process = start(code, here, language)
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        said += out
    return said


@pytest.mark.slow
def test_choosing_labels(tmp_path: Path) -> None:
    said = follow("choose-labels.md", tmp_path)
    assert "classes among them: 10 of 10" in said
    told = [
        line
        for line in (DOCS / "choose-labels.md").read_text(encoding="utf-8").splitlines()
        if line.startswith(("12 samples", "next: "))
    ]
    assert len(told) == 2
    assert "\n".join(told) in said
    assert told[1].removeprefix("next: ") in [code.strip() for _, code in blocks("choose-labels.md")]
    assert len((tmp_path / "next.csv").read_text().splitlines()) == 13
    assert (tmp_path / "next.png").stat().st_size > 1000
    assert len(re.findall(r"\(\d+, '\d', \d+\)", said)) == 5
    disputed = re.search(r"disputed: (\d+) of 1797", said)
    assert disputed is not None
    assert 0 < int(disputed[1]) < 1797


@pytest.mark.slow
def test_a_gpu_or_none(tmp_path: Path) -> None:
    said = follow("gpu.md", tmp_path)
    assert "steps/s" in said
    assert "5 steps in" in said


@pytest.mark.slow
def test_stopping_and_going_on(tmp_path: Path) -> None:
    first, *rest = [code for _, code in blocks("resume.md")]
    process = start(first, tmp_path)
    checkpoints = tmp_path / "runs" / "stopped" / "checkpoint"
    until = time.monotonic() + 200
    while not list(checkpoints.glob("*.safetensors")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    result = tmp_path / "runs" / "stopped" / "result.json"
    assert not result.exists()
    written = []
    for code in rest:
        process = start(code, tmp_path)
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        assert "60 steps in" in out
        written.append(result.read_bytes())
    assert written[0] == written[1]


@pytest.mark.slow
def test_reproducing_a_table(tmp_path: Path) -> None:
    said = follow("reproduce.md", tmp_path)
    assert "4 runs, 4 left with 80 steps" in said
    assert "3 runs, 1 left with 20 steps" in said
