"""What CONTRIBUTING.md shows works: its method, data set and backbone register and train, inside and outside."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from normatch.methods import Batch, Method, Outcome, methods
from tests.conftest import make_batch, make_method

PROJECT = Path(__file__).parents[2]


def code(name: str) -> str:
    """The example that defines what is called ``name``."""
    text = (PROJECT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (found,) = [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if f'"{name}"' in block]
    return str(found)


@pytest.fixture(params=["mymethod", "agreeing-fixmatch"])
def example(request: pytest.FixtureRequest) -> Iterator[str]:
    methods.names()  # the registry's own come first
    exec(code(request.param), {"__name__": "example"})
    yield request.param
    del methods._things[request.param]


def test_the_example_is_a_method(example: str) -> None:
    method = make_method(example).train()
    outcome = method(make_batch(method, step=60))
    assert isinstance(outcome, Outcome)
    torch.stack(list(outcome.losses.values())).sum().backward()
    assert all(p.grad is not None for p in method.parameters())


def test_the_example_of_consensus_learns(tmp_path: Path) -> None:
    """Its flow has an optimiser with which it does not diverge, and all its losses have begun."""
    (tmp_path / "agreeing.py").write_text(code("agreeing-fixmatch"), encoding="utf-8")
    flags = ["--method", "agreeing-fixmatch", "--steps", "80", "--batch", "8", "--epoch", "5", "--log-every", "10"]
    trained = run(tmp_path, "agreeing", "train", "digits-40", *flags, "--out", "run")
    assert trained.returncode == 0, trained.stderr
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert records[-1]["loss/auxiliary"] < 0.5 * records[3]["loss/auxiliary"]
    short = run(tmp_path, "agreeing", "train", "digits-40", *flags, "--steps", "5", "--out", "short")
    assert "ends-before-ramp" in short.stderr


def test_a_method_without_a_summary_is_listed() -> None:
    class Plain(Method):
        """A method that says nothing of itself."""

        def forward(self, batch: Batch) -> Outcome:
            return Outcome({}, {})

    methods.add("plain", Plain)
    try:
        assert methods.get("plain").summary == ""
    finally:
        del methods._things["plain"]


def run(folder: Path, plugins: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "normatch", *arguments]
    environment = with_plugins(folder, plugins)
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


def with_plugins(folder: Path, plugins: str) -> dict[str, str]:
    """An environment in which this checkout finds modules of a folder."""
    path = os.pathsep.join(map(str, (folder, PROJECT / "src")))
    return os.environ | {"NORMATCH_PLUGINS": plugins, "PYTHONPATH": path}


def test_the_example_is_a_plug_in(tmp_path: Path) -> None:
    (tmp_path / "mymodule.py").write_text(code("mymethod"), encoding="utf-8")
    flags = ["--steps", "4", "--batch", "8", "--ratio", "1", "--settings.memory", "0.5"]
    trained = run(tmp_path, "mymodule", "train", "digits-40", "--method", "mymethod", *flags, "--out", "run")
    assert trained.returncode == 0, trained.stderr
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert 0 < records[-1]["usual_confidence"] < 1
    evaluated = run(tmp_path, "mymodule", "eval", "run", "--json")
    assert json.loads(evaluated.stdout)["n"] == 360
    without = run(tmp_path, "", "eval", "run")
    assert without.returncode == 2
    assert "if a plug-in defines it, set NORMATCH_PLUGINS to its module" in without.stderr
    assert without.stderr.count("\n") == 1


def test_the_command_that_takes_the_plug_in_does(tmp_path: Path) -> None:
    """As the installed script, which does not look for modules in the current folder by itself."""
    script = Path(sys.executable).parent / "normatch"
    if not script.is_file():
        pytest.skip("normatch is not installed here")
    text = (PROJECT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"`([^`\n]*NORMATCH_PLUGINS=mymodule normatch train [^`]*)`", text)
    (tmp_path / "mymodule.py").write_text(code("mymethod"), encoding="utf-8")
    environment = os.environ | {"PATH": f"{script.parent}{os.pathsep}{os.environ['PATH']}"}
    small = "--steps 1 --batch 8 --ratio 1 --out run"
    done = subprocess.run(
        f"{command} {small}", shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def data_and_net(tmp_path: Path) -> Path:
    """A folder with the two examples as modules, and a data root ``root`` with files of the first."""
    for name in ("mydata", "mynet"):
        (tmp_path / f"{name}.py").write_text(code(name), encoding="utf-8")
    files = tmp_path / "root" / "mydata"
    files.mkdir(parents=True)
    draw = np.random.default_rng(0)
    for part, n in (("train", 40), ("test", 10)):
        labels = np.arange(n) % 2
        images = draw.integers(0, 128, (n, 32, 32, 3), dtype=np.uint8) + 127 * labels[:, None, None, None]
        np.savez(files / f"{part}.npz", images=images.astype(np.uint8), labels=labels)
    return tmp_path


def test_the_example_data_set_trains_with_the_example_backbone(data_and_net: Path) -> None:
    flags = ["--steps", "4", "--batch", "4", "--ratio", "1", "--labels", "4", "--data-root", "root", "--out", "run"]
    chosen = ["--data", "mydata", "--backbone", "mynet"]
    trained = run(data_and_net, "mydata mynet", "train", "cifar10-40", *chosen, *flags)
    assert trained.returncode == 0, trained.stderr
    assert json.loads((data_and_net / "run" / "model.json").read_text())["backbone"] == "mynet"
    assert json.loads((data_and_net / "run" / "result.json").read_text())["n"] == 10
    for kind, name in (("datasets", "mydata"), ("backbones", "mynet")):
        listed = run(data_and_net, "mydata mynet", "list", kind, "--json")
        assert name in [entry["name"] for entry in json.loads(listed.stdout)]


def test_the_example_data_set_says_what_is_missing(data_and_net: Path) -> None:
    (data_and_net / "root" / "mydata" / "test.npz").unlink()
    refused = run(data_and_net, "mydata", "train", "--data", "mydata", "--data-root", "root", "--out", "run")
    assert refused.returncode == 2
    assert "mydata: test.npz is missing in root/mydata: run `normatch data get mydata --root root`" in refused.stderr


def test_the_contract_tests_take_the_example_backbone(data_and_net: Path) -> None:
    environment = with_plugins(data_and_net, "mynet")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "mynet"]
    done = subprocess.run(
        [*command, "tests/nets/test_contract.py"], cwd=PROJECT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


def test_a_plug_in_that_is_not_there_is_named(tmp_path: Path) -> None:
    listed = run(tmp_path, "nomodule", "list", "methods")
    assert listed.returncode == 2
    assert listed.stderr.startswith("normatch: plug-in 'nomodule' cannot be imported")
    assert listed.stderr.count("\n") == 1
