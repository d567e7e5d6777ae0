"""What CONTRIBUTING.md shows works: its method, data set and backbone register and train."""

import json
import re
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
