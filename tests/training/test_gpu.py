"""What a GPU adds: captured steps that never wait for the host, repeat, resume, and agree with eager ones."""

import gc
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from normatch import recipes
from normatch.config import Config
from normatch.data import Corpus, Dataset
from normatch.methods import Batch, Outcome, methods
from normatch.methods.fixmatch import FixMatch
from normatch.methods.normatch import NorMatchSettings
from normatch.methods.parts.groups import OptimConfig
from normatch.training import Loop, Run, prepare, train
from normatch.training.bench import bench
from normatch.training.job import untrained_start
from normatch.training.metrics import Record
from normatch.training.progress import Lines

# cuBLAS reads it when it starts, which may be before the first deterministic test.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("default"),  # torch's own compiler uses what torch deprecates
]

DIGITS = recipes.digits().replace(device="auto", compile="on", log_every=10)
CIFAR = recipes.cifar10().replace(compile="on", log_every=10)


@pytest.fixture(autouse=True)
def _afresh() -> None:
    """No test sees what another compiled: too many versions of one function, and torch stops compiling it."""
    torch._dynamo.reset()


def noise(train_items: int = 2000, test_items: int = 0) -> Corpus:
    """Random images of CIFAR-10's shape."""
    rng = np.random.default_rng(0)

    def part(n: int) -> Dataset:
        images = rng.integers(0, 256, (n, 32, 32, 3), dtype=np.uint8)
        return Dataset(images, np.arange(n) % 10, tuple(map(str, range(10))))

    return Corpus("noise", part(train_items), part(test_items) if test_items else None)


class Losses(Lines):
    """Keeps the logged losses."""

    def __init__(self) -> None:
        super().__init__("run")
        self.values: list[float] = []

    def __call__(self, step: int, total: int, record: Record) -> None:
        loss = record.get("loss")
        if isinstance(loss, float):
            self.values.append(loss)


def run(config: Config, corpus: Corpus | None = None) -> tuple[Tensor, dict[str, Tensor]]:
    """The logged losses and the last state of a run of all its steps."""
    job = prepare(config, corpus)
    losses = Losses()
    with job.runtime.scope():
        loop = Loop(job)
        loop.run(losses)
    return torch.tensor(losses.values), {name: value.cpu() for name, value in loop.step.state().items()}


@contextmanager
def waiting_is_an_error() -> Iterator[None]:
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def test_waiting_would_be_noticed() -> None:
    one = torch.ones(1, device="cuda")
    with waiting_is_an_error(), pytest.raises(RuntimeError, match="synchroniz"):
        one.item()


@pytest.mark.parametrize("compiled", ["on", "off"])
@pytest.mark.parametrize("method", methods.names())
def test_a_step_never_waits_for_the_device(method: str, compiled: str) -> None:
    config = DIGITS.replace(method=method).replace(compile=compiled)
    job = prepare(config)
    with job.runtime.scope():
        step = Loop(job).step
        step.method.train()
        for _ in range(5):
            step()
        batch, _ = step.sample()
        assert step.runtime.capture == (compiled == "on")
        with waiting_is_an_error():
            for _ in range(20):
                step()
            with step.runtime.autocast():
                step.method(batch)
    assert step.done == 25


@pytest.mark.parametrize(
    ("config", "corpus", "steps"),
    [
        pytest.param(DIGITS.replace(optim=OptimConfig(lr=0.01)), None, 1000, id="digits, small-wide"),
        pytest.param(CIFAR, noise(), 100, id="noise, wrn-28-2"),
        pytest.param(CIFAR.replace(optim=OptimConfig(muon=0.01)), noise(), 100, id="noise, wrn-28-2, muon"),
    ],
)
def test_captured_equals_eager(config: Config, corpus: Corpus | None, steps: int) -> None:
    """In float32: the mean loss of the first five steps within 1 %, of every hundred within 5 %.

    No closer, since consensus is a jump and training amplifies rounding: on digits a change of the first weights by one
    part in 10⁷ alone moves the mean of ten early steps by up to 5 %.
    """
    config = config.replace(steps=steps, precision="float32", log_every=5)
    captured, _ = run(config, corpus)
    eager, _ = run(config.replace(compile="off"), corpus)
    assert len(captured) == len(eager) == steps // 5

    def difference(a: Tensor, b: Tensor) -> Tensor:
        return (a - b).abs() / b.abs()

    first = difference(captured, eager)
    hundreds = difference(captured.view(-1, 20).mean(1), eager.view(-1, 20).mean(1))
    print(f"largest relative difference of loss: of five steps {first.max():.1e}, of a hundred {hundreds.max():.1e}")
    assert first[0] < 0.01
    assert hundreds.max() < 0.05


@pytest.mark.parametrize(
    ("config", "corpus"),
    [
        pytest.param(DIGITS, None, id="digits"),
        pytest.param(CIFAR, noise(), id="noise, wrn-28-2"),
        pytest.param(CIFAR.replace(optim=OptimConfig(muon=0.01)), noise(), id="noise, wrn-28-2, muon"),
    ],
)
def test_deterministic_runs_are_equal_bit_for_bit(config: Config, corpus: Corpus | None) -> None:
    config = config.replace(steps=40, deterministic=True)
    (losses, state), (losses_again, state_again) = (run(config, corpus) for _ in range(2))
    assert torch.equal(losses, losses_again)
    assert [name for name, value in state.items() if not torch.equal(value, state_again[name])] == []


class StopsAt(Lines):
    """Ends a run from within, as an interrupt does."""

    def __init__(self, step: int) -> None:
        super().__init__("stops")
        self._step = step

    def __call__(self, step: int, total: int, record: Record) -> None:
        if step >= self._step:
            raise KeyboardInterrupt


@pytest.mark.parametrize("rate", [0.0, 0.01])
def test_a_resumed_run_is_the_run_left_alone(tmp_path: Path, rate: float) -> None:
    config = DIGITS.replace(steps=60, checkpoint_every=30, deterministic=True, optim=OptimConfig(muon=rate))
    train(config, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "stopped", progress=StopsAt(40))
    assert [p.name for p in (tmp_path / "stopped" / "checkpoint").iterdir()] == ["step-00000030.safetensors"]
    train(config, tmp_path / "stopped", resume=True)
    for name in ("model.safetensors", "checkpoint/step-00000060.safetensors", "predictions.csv"):
        assert (tmp_path / "stopped" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_cifar10_takes_no_more_than_two_and_a_half_gigabytes() -> None:
    """With all its 50,000 training and 10,000 test images, training and an evaluation."""
    # A step is part of a reference cycle: uncollected, those of earlier tests would count.
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    job = prepare(CIFAR, noise(50_000, 10_000))
    with job.runtime.scope():
        loop = Loop(job)
        loop.step.method.train()
        for _ in range(6):
            loop.step()
        training = torch.cuda.max_memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        loop.evaluate()
    evaluation = torch.cuda.max_memory_allocated()
    print(f"peak GPU memory: training {training / 1e9:.2f} GB, evaluation {evaluation / 1e9:.2f} GB")
    assert max(training, evaluation) <= 2.5e9


def test_a_method_that_looks_at_values_runs_eagerly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    forward = FixMatch.forward

    def looking(self: FixMatch, batch: Batch) -> Outcome:
        assert batch.labels.min().item() >= 0
        return forward(self, batch)

    monkeypatch.setattr(FixMatch, "forward", looking)
    config = DIGITS.replace(method="fixmatch", steps=10, log_every=5, precision="float32", deterministic=True)
    job = prepare(config.replace(compile="auto"))
    losses = Losses()
    with job.runtime.scope():
        loop = Loop(job)
        loop.run(losses)
    assert not loop.step.runtime.capture
    assert "steps run eagerly: the step cannot be" in capsys.readouterr().err
    expected, _ = run(config.replace(compile="off"))
    torch.testing.assert_close(torch.tensor(losses.values), expected, rtol=1e-3, atol=0)
    # The next run is captured as if nothing had happened.
    monkeypatch.undo()
    torch._dynamo.reset()
    job = prepare(config)
    with job.runtime.scope():
        loop = Loop(job)
        loop.run()
    assert loop.step.runtime.capture


def test_the_bench_captures_each_part() -> None:
    report = bench(DIGITS, repeats=2, seconds=0.05)
    assert report["parts_not_captured"] == []
    assert all(ms > 0 for ms in report["parts_ms"].values())
    assert report["peak_memory_bytes"] > 0
    assert report["machine"]["gpu"]


def test_under_torchrun_a_single_process_captures_its_all_reduce_and_trains_alike(tmp_path: Path) -> None:
    """``--compile on`` makes it an error if the step cannot be captured."""
    words = shlex.split("-m normatch train digits-40 --steps 20 --log-every 10 --compile on --deterministic --out")
    runs: dict[str, list[str]] = {"plain": [], "torchrun": shlex.split("-m torch.distributed.run --nproc-per-node 1")}
    for name, before in runs.items():
        subprocess.run([sys.executable, *before, *words, str(tmp_path / name)], check=True)
    plain, under_torchrun = (Run(tmp_path / name) for name in runs)
    assert "captured" in under_torchrun.result["hardware"]
    weights = [(run.path / "model.safetensors").read_bytes() for run in (plain, under_torchrun)]
    assert weights[0] == weights[1]


def test_a_fine_tuned_step_is_captured() -> None:
    """EfficientNet-Lite with a rate of its own, statistics that stay, and no gradients for weak views."""
    optim = OptimConfig(lr=0.003, backbone_lr=1e-4)
    config = CIFAR.replace(backbone="efficientnet-lite0", norm_momentum=0.0, optim=optim, batch=16, steps=8)
    config = config.replace(settings=NorMatchSettings(passes="shared"))
    corpus = noise()
    job = prepare(config, corpus, start=untrained_start(config, corpus.train))
    with job.runtime.scope():
        loop = Loop(job)
        loop.run()  # compile "on": what cannot be captured is an error
        assert loop.step._graph is not None
        assert next(loop.job.method.model.parameters()).isfinite().all()
