"""Where a step cannot be compiled or captured it runs eagerly, says why, and the result is the same."""

import dataclasses
import importlib.util
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import normatch.training.runtime
import normatch.training.step
from normatch.config import Config
from normatch.errors import UserError
from normatch.methods import methods
from normatch.methods.normatch import NorMatch, NorMatchSettings
from normatch.methods.parts.groups import OptimConfig
from normatch.training import Loop, prepare
from normatch.training.progress import Lines
from normatch.training.runtime import Runtime


def result(config: Config, capture: bool) -> tuple[dict[str, Tensor], Runtime]:
    """All tensors after a run, whose runtime pretends to capture."""
    job = prepare(config)
    loop = Loop(dataclasses.replace(job, runtime=dataclasses.replace(job.runtime, capture=capture)))
    loop.run(progress=Lines("run"))
    return loop.step.state(), loop.step.runtime


@pytest.fixture
def config(tiny_config: Config) -> Config:
    # Accumulated gradients are state that only backward writes; without a ramp, from the first step on.
    return tiny_config.replace(settings=NorMatchSettings(accumulate_mixture=True, flow_ramp=0))


def fails_late(function: Callable[..., Any], **_: object) -> Callable[..., Any]:
    """Compiled code whose backward pass fails, after forward has changed buffers and backward some gradients."""

    def failing(*arguments: Any) -> Any:
        value = function(*arguments)
        if isinstance(value, Tensor):
            return value
        value[0].backward()
        raise RuntimeError("no such kernel\nwith a long story")

    return failing


def refuse(work: Callable[[], object]) -> None:
    raise RuntimeError("operation not permitted when stream is capturing")


@pytest.mark.parametrize(
    ("compile_", "says"),
    [
        (fails_late, "the step cannot be compiled (RuntimeError: no such kernel)\n"),
        (lambda function, **_: function, "the step cannot be captured (RuntimeError: operation not permitted when"),
    ],
)
def test_a_step_that_cannot_be_compiled_or_captured(
    compile_: Any, says: str, config: Config, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    expected, _ = result(config, capture=False)
    assert capsys.readouterr().err.count("eagerly") == 0
    monkeypatch.setattr(torch, "compile", compile_)
    monkeypatch.setattr(normatch.training.step, "capture", refuse)
    got, runtime = result(config, capture=True)
    torch.testing.assert_close(got, expected, rtol=0, atol=0)
    said = capsys.readouterr().err
    assert "run  compiling the step …" in said
    assert ("capturing the step …" in said) == (compile_ is not fails_late)
    assert said.count(f"steps run eagerly: {says}") == said.count("eagerly") == 1
    assert runtime.eager_because is not None
    assert "captured" not in runtime.describe()


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The graphs that torch was asked to compile, on a CPU that pretends to capture."""
    graphs: list[str] = []
    compile_ = torch.compile

    def backend(graph: torch.fx.GraphModule, _: object) -> Callable[..., Any]:
        graphs.append(graph.code)
        return graph.forward

    torch.compiler.reset()
    monkeypatch.setattr(torch, "compile", lambda function, **_: compile_(function, backend=backend, dynamic=False))
    monkeypatch.setattr(normatch.training.step, "capture", lambda work: SimpleNamespace(replay=work))
    yield graphs
    torch.compiler.reset()  # so many would exceed torch's own limit for others


def test_runs_of_one_process_share_code_and_are_all_compiled(
    tiny_config: Config, compiled: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    settings = NorMatchSettings(decide_after=0.6, adaptive=True, flow_dropout="first-epoch")
    config = tiny_config.replace(settings=settings, steps=1)
    result(config, capture=True)
    before = len(compiled)
    result(config.replace(steps=2, epoch=7, seed=3, labels=20, optim=OptimConfig(lr=0.01)), capture=True)
    assert len(compiled) == before > 0, "of another length"
    assert "compiled in pieces" not in capsys.readouterr().err
    with torch._dynamo.config.patch(recompile_limit=1):
        for batch in (2, 3, 4):
            result(tiny_config.replace(method="supervised", batch=batch, steps=1), capture=True)
    added = len(compiled) - before
    assert added > 0
    assert added % 3 == 0, "of another batch"


@pytest.mark.usefixtures("compiled")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # which torch looks at after a break
def test_a_step_that_is_compiled_in_pieces_says_so(
    config: Config, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    predict = NorMatch.predict

    def in_pieces(self: NorMatch, *given: Any) -> Tensor:
        torch._dynamo.graph_break()
        return predict(self, *given)

    monkeypatch.setattr(NorMatch, "predict", in_pieces)
    _, runtime = result(config, capture=True)
    said = capsys.readouterr().err
    assert said.count("steps are slower than they could be: compiled in pieces (Call to `torch._dynamo.gr") == 1
    assert runtime.capture


@pytest.mark.parametrize("error", [RuntimeError("no"), torch.OutOfMemoryError("no")])
def test_who_insists_or_has_no_memory_gets_the_error(
    config: Config, monkeypatch: pytest.MonkeyPatch, error: RuntimeError
) -> None:
    def failing(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(torch, "compile", lambda function, **_: failing)
    job = prepare(config)
    runtime = dataclasses.replace(job.runtime, capture=True)
    loop = Loop(dataclasses.replace(job, runtime=runtime))
    loop.step._insist = type(error) is RuntimeError
    with pytest.raises(type(error), match="no"):
        loop.run()


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has a GPU, as far as choosing a runtime can see."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)


@pytest.mark.usefixtures("gpu")
def test_what_is_known_beforehand(tiny_config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Runtime.of(tiny_config).capture
    off = Runtime.of(tiny_config.replace(compile="off"))
    assert (off.capture, off.eager_because) == (False, None)

    def because() -> str | None:
        runtime = Runtime.of(tiny_config)
        assert not runtime.capture
        with pytest.raises(UserError, match=f"compile is 'on', but {runtime.eager_because}: choose 'auto' or 'off'"):
            Runtime.of(tiny_config.replace(compile="on"))
        return runtime.eager_because

    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "get_device_capability", lambda: (6, 1))
        assert because() == "this GPU's compute capability 6.1 is below 7.0"
    with monkeypatch.context() as patch:
        patch.setattr(importlib.util, "find_spec", lambda name: None)
        assert because() == "Triton is not installed"
    with monkeypatch.context() as patch:
        patch.setattr(methods.get("normatch"), "capturable", False)
        assert because() == "method 'normatch' cannot be captured"


def test_it_is_said_before_the_first_step(tiny_config: Config, capsys: pytest.CaptureFixture[str]) -> None:
    job = prepare(tiny_config.replace(steps=2))
    runtime = dataclasses.replace(job.runtime, eager_because="Triton is not installed")
    Loop(dataclasses.replace(job, runtime=runtime)).run(progress=Lines("title"))
    assert capsys.readouterr().err.startswith("title  steps run eagerly: Triton is not installed\n")


def test_compiled_code_is_kept(tiny_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "TORCHINDUCTOR_CACHE_DIR"
    environment: dict[str, str] = {}
    monkeypatch.setattr(os, "environ", environment)
    monkeypatch.setattr(normatch.training.runtime, "COMPILED", tmp_path / "compiled")
    runtime = prepare(tiny_config).runtime
    with runtime.scope():
        assert name not in environment
    with dataclasses.replace(runtime, capture=True).scope():
        assert environment[name] == str(tmp_path / "compiled")
    assert name not in environment
    environment[name] = "mine"
    with dataclasses.replace(runtime, capture=True).scope():
        assert environment[name] == "mine"
    # Where the folder cannot be made, torch's own choice stands.
    del environment[name]
    (tmp_path / "file").touch()
    monkeypatch.setattr(normatch.training.runtime, "COMPILED", tmp_path / "file" / "compiled")
    with dataclasses.replace(runtime, capture=True).scope():
        assert name not in environment
