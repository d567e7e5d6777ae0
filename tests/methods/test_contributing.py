"""What CONTRIBUTING.md shows works: its method, data set and backbone register and train, inside and outside."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from normatch.config import Config
from normatch.data import sources
from normatch.methods import methods
from normatch.nets import backbones
from normatch.training import train
from tests.conftest import make_batch, make_method

PROJECT = Path(__file__).parents[2]
REGISTRIES: dict[str, Any] = {"mymethod": methods, "mydata": sources, "mynet": backbones}


def code(name: str) -> str:
    """The example that defines what is called ``name``."""
    text = (PROJECT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (found,) = [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if f'"{name}"' in block]
    return str(found)


@pytest.fixture
def _examples() -> Iterator[None]:
    for name, registry in REGISTRIES.items():
        registry.names()  # the registry's own come first
        exec(code(name), {"__name__": "example"})
    yield
    for name, registry in REGISTRIES.items():
        del registry._things[name]


@pytest.mark.usefixtures("_examples")
def test_the_examples_train_together(tmp_path: Path, tiny_config: Config) -> None:
    files = tmp_path / "root" / "mydata"
    files.mkdir(parents=True)
    draw = np.random.default_rng(0)
    for part, n in (("train", 40), ("test", 10)):
        labels = np.arange(n) % 2
        images = draw.integers(0, 128, (n, 32, 32, 3)) + 127 * labels[:, None, None, None]
        np.savez(files / f"{part}.npz", images=images.astype(np.uint8), labels=labels)
    config = tiny_config.replace(data="mydata", test_share=0.0, labels=4, backbone="mynet", steps=4)
    run = train(config.replace(method="mymethod", data_root=tmp_path / "root"), tmp_path / "run")
    assert json.loads((run.path / "model.json").read_text())["backbone"] == "mynet"
    assert json.loads((run.path / "result.json").read_text())["n"] == 10


@pytest.mark.usefixtures("_examples")
def test_the_example_method_trusts_what_is_above_the_average() -> None:
    method = make_method("mymethod", memory=0.0).eval()
    pseudo = method(make_batch(method)).pseudo
    assert pseudo.trusted.tolist() == (pseudo.confidence >= pseudo.confidence.mean()).tolist()


def test_the_example_is_a_plug_in(tmp_path: Path) -> None:
    (tmp_path / "mymodule.py").write_text(code("mymethod"), encoding="utf-8")
    path = os.pathsep.join(map(str, (tmp_path, PROJECT / "src")))
    listed = subprocess.run(
        [sys.executable, "-m", "normatch", "list", "methods", "--json"],
        env=os.environ | {"NORMATCH_PLUGINS": "mymodule", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert "mymethod" in [entry["name"] for entry in json.loads(listed.stdout)], listed.stderr
