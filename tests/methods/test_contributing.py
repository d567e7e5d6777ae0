"""The method that CONTRIBUTING.md shows is one: it registers, trains and keeps the contract."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from normatch.methods import Outcome, methods
from tests.conftest import make_batch, make_method


@pytest.fixture
def example() -> Iterator[str]:
    methods.names()  # the registry's own come first
    text = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(code, {"__name__": "mymethod"})
    yield "mymethod"
    del methods._things["mymethod"]


def test_the_example_is_a_method(example: str) -> None:
    method = make_method(example).train()
    outcome = method(make_batch(method))
    assert isinstance(outcome, Outcome)
    torch.stack(list(outcome.losses.values())).sum().backward()
    assert all(p.grad is not None for p in method.parameters())
