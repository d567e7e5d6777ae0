"""The method that CONTRIBUTING.md shows is one: it registers, trains and keeps the contract, inside and outside."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from normatch.methods import Outcome, methods
from tests.conftest import make_batch, make_method


def code() -> str:
    text = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
    (found,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    return str(found)


@pytest.fixture
def example() -> Iterator[str]:
    methods.names()  # the registry's own come first
    exec(code(), {"__name__": "mymethod"})
    yield "mymethod"
    del methods._things["mymethod"]


def test_the_example_is_a_method(example: str) -> None:
    method = make_method(example).train()
    outcome = method(make_batch(method))
    assert isinstance(outcome, Outcome)
    torch.stack(list(outcome.losses.values())).sum().backward()
    assert all(p.grad is not None for p in method.parameters())


def run(folder: Path, plugins: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"NORMATCH_PLUGINS": plugins, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-m", "normatch", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


def test_the_example_is_a_plug_in(tmp_path: Path) -> None:
    (tmp_path / "mymodule.py").write_text(code())
    flags = ["--steps", "4", "--batch", "8", "--ratio", "1", "--settings.memory", "0.5"]
    trained = run(tmp_path, "mymodule", "train", "digits-40", "--method", "mymethod", *flags, "--out", "run")
    assert trained.returncode == 0, trained.stderr
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert 0 < records[-1]["usual_confidence"] < 1
    evaluated = run(tmp_path, "mymodule", "eval", "run", "--json")
    assert json.loads(evaluated.stdout)["n"] == 360


def test_a_plug_in_that_is_not_there_is_named(tmp_path: Path) -> None:
    listed = run(tmp_path, "nomodule", "list", "methods")
    assert listed.returncode == 2
    assert listed.stderr.startswith("normatch: NORMATCH_PLUGINS names 'nomodule', which cannot be imported")
    assert listed.stderr.count("\n") == 1
