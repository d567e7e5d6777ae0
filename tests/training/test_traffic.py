"""The floor of a step's time: bytes by the stated rule, counted without computing; bandwidth by copying."""

import pytest
import torch
from torch import Tensor

from normatch.config import Config
from normatch.data import Corpus
from normatch.methods import Settings
from normatch.methods.normatch import NorMatchSettings
from normatch.training import Loop, prepare
from normatch.training.traffic import bandwidth, step_bytes

B, U = 8, 16  # labelled and unlabelled images of a step


def bytes_of(config: Config, bfloat16: bool = False, corpus: Corpus | None = None) -> dict[str, int]:
    step = Loop(prepare(config, corpus)).step
    step.method.train()
    before = {name: value.clone() for name, value in step.state().items()}
    moved = step_bytes(step, step.sample()[0], bfloat16)
    assert all(torch.equal(value, before[name]) for name, value in step.state().items())
    return moved


@pytest.fixture
def config(tiny_config: Config) -> Config:
    return tiny_config.replace(batch=B, ratio=U // B)


def test_each_layer_is_counted_as_hooks_see_it(config: Config) -> None:
    names = ("convolutions", "normalisation", "linear layers")
    supervised = config.replace(method="supervised", settings=Settings())
    moved = bytes_of(supervised)
    step = Loop(prepare(supervised)).step
    outputs: dict[str, int] = dict.fromkeys(names, 0)

    def count(module: torch.nn.Module, _inputs: object, output: Tensor) -> None:
        kind = {"Conv2d": names[0], "BatchNorm2d": names[1], "Linear": names[2]}[type(module).__name__]
        outputs[kind] += output.numel() * output.element_size()

    for module in step.method.modules():
        if type(module).__name__ in ("Conv2d", "BatchNorm2d", "Linear"):
            module.register_forward_hook(count)
    step.method.train()
    step.method.model.backbone.plain = True
    step.method(step.sample()[0])
    assert {name: moved[name] for name in names} == {name: 5 * total for name, total in outputs.items()}
    weights = sum(p.numel() * 4 for p in step.method.parameters())
    assert moved["linear layers"] == 5 * B * 10 * 4
    assert moved["views"] == 3 * B * 64
    assert moved["parameters"] == 8 * weights
    assert moved["optimiser state"] == 2 * weights  # momentum, which there is from the start


def test_what_has_no_gradient_is_moved_twice(config: Config) -> None:
    joint, shared = (bytes_of(config.replace(settings=NorMatchSettings(passes=p))) for p in ("joint", "shared"))
    # Of B + 2 U images, U lose their backward pass: 3 of 5 moves.
    assert shared["convolutions"] * 5 * (B + 2 * U) == joint["convolutions"] * (5 * (B + U) + 2 * U)
    assert shared["views"] == joint["views"] == 3 * (B + 2 * U) * 64


def test_half_the_precision_is_half_the_bytes(config: Config) -> None:
    full, half = (bytes_of(config, bfloat16) for bfloat16 in (False, True))
    for name in ("convolutions", "normalisation"):
        assert 2 * half[name] == full[name]
    assert full["linear layers"] / 2 < half["linear layers"] < full["linear layers"]  # the flow keeps float32


def test_the_optimisers_state_counts_once_it_exists(config: Config) -> None:
    step = Loop(prepare(config)).step
    step.method.train()
    step()
    state = sum(t.numel() * t.element_size() for t in step.optimisers.state().values())
    assert state > 0
    assert step_bytes(step, step.sample()[0], False)["optimiser state"] == 2 * state


def test_bandwidth_is_that_of_memory() -> None:
    assert 1e8 < bandwidth(torch.device("cpu"), copies=3) < 1e13
