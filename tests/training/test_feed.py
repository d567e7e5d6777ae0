"""Either pool gives each step the same inputs, and the thread that reads ahead ends with the run."""

import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from normatch.config import Config
from normatch.data import Corpus, Dataset, HostPool, Pool, Stream, arrays
from normatch.data import pool as pools
from normatch.data.dataset import Selected
from normatch.errors import UserError
from normatch.training import feed as feeding
from normatch.training import job, prepare, train
from normatch.training.feed import SLOTS, DeviceFeed, Draw, HostFeed, stays_on_host
from normatch.training.loop import Loop
from normatch.training.metrics import Record
from normatch.training.progress import Lines

CPU = torch.device("cpu")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU here")
# On a GPU steps are compiled, and torch's own compiler uses what torch deprecates.
pytestmark = [pytest.mark.filterwarnings("default")] if torch.cuda.is_available() else []


LIMIT = 600.0 if torch.cuda.is_available() else 120.0
"""Seconds for one test, including compilation on a GPU: if reading ahead breaks, a step waits for ever."""


@pytest.fixture(autouse=True)
def _no_test_hangs() -> Iterator[None]:
    def fail(*_: object) -> None:
        pytest.fail(f"not done after {LIMIT:g} seconds")

    before = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, LIMIT)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(autouse=True)
def _no_thread_outlives_a_test() -> Iterator[None]:
    yield
    assert reading() == []


def reading() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("normatch-feed")]


def some_items(n: int, images: bool) -> Dataset:
    rng = np.random.default_rng(n)
    inputs = (
        rng.integers(0, 256, (n, 4, 5, 3), dtype=np.uint8) if images else rng.standard_normal((n, 7), dtype=np.float32)
    )
    return Dataset(inputs, np.arange(n) % 3, ("a", "b", "c"))


def some_draws(n: int, labelled: int, batch: int, ratio: int, seed: int = 0) -> list[Draw]:
    samples = np.arange(n)[::-1].copy()
    return [
        (Stream(labelled, batch, seed, "labelled"), samples[:labelled]),
        (Stream(n, batch * ratio, seed, "unlabelled"), samples),
    ]


def positions(draws: list[Draw], step: int) -> list[torch.Tensor]:
    return [torch.from_numpy(samples[stream.rows(step, 1)[0].numpy()]) for stream, samples in draws]


@given(
    n=st.integers(2, 30),
    labelled=st.integers(1, 2),
    batch=st.integers(1, 9),
    ratio=st.integers(1, 5),
    images=st.booleans(),
    start=st.integers(0, 300),
)
def test_both_feeds_give_the_same_tensors(
    n: int, labelled: int, batch: int, ratio: int, images: bool, start: int
) -> None:
    draws, dataset = some_draws(n, labelled, batch, ratio), some_items(n, images)
    device, host = DeviceFeed(Pool(dataset)), HostFeed(HostPool(dataset), draws)
    try:
        # Several epochs; then a jump, as when a checkpoint is loaded.
        for step in (*range(start, start + 2 * SLOTS + 1), start + 100, 0):
            at = positions(draws, step)
            for feed in (device, host):
                feed.prepare(step)
            for expected, given_ in zip(device.images(*at), host.images(*at), strict=True):
                assert torch.equal(given_, expected)
                assert (given_.dtype, given_.stride()) == (expected.dtype, expected.stride())
    finally:
        host.close()


def test_what_a_step_was_given_stays_as_it_is() -> None:
    draws = some_draws(20, 2, 3, 2)
    feed = HostFeed(HostPool(some_items(20, images=True)), draws)
    feed.prepare(0)
    first = feed.images(*positions(draws, 0))
    kept = [part.clone() for part in first]
    for step in range(1, 2 * SLOTS):
        feed.prepare(step)
    assert all(torch.equal(a, b) for a, b in zip(first, kept, strict=True))
    feed.close()


def test_an_error_in_the_thread_is_raised_by_the_step_that_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    take, taken = Selected.take, []

    def failing(self: Selected, positions: NDArray[np.int64], out: NDArray[np.uint8]) -> None:
        taken.append(positions)
        if len(taken) > 2:
            raise ArithmeticError("the disk is gone")
        take(self, positions, out)

    monkeypatch.setattr(Selected, "take", failing)
    feed = HostFeed(HostPool(some_items(20, images=True)), some_draws(20, 2, 3, 2))
    feed.prepare(0)
    feed.prepare(1)
    for _ in range(2):
        with pytest.raises(ArithmeticError, match="the disk is gone"):
            feed.prepare(2)
    feed.close()


def test_the_thread_ends_when_training_stops(tiny_config: Config) -> None:
    class Stopping(Lines):
        def __call__(self, step: int, total: int, record: Record) -> None:
            assert len(reading()) == 1
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        Loop(prepare(tiny_config.replace(pool="host"))).run(progress=Stopping("stops"))


def test_a_run_is_the_same_with_either_pool(tiny_config: Config, tmp_path: Path) -> None:
    config = tiny_config.replace(method="fixmatch", include_labelled=False, validation=0.1, steps=6)
    runs = [train(config.replace(pool=pool), tmp_path / pool) for pool in ("device", "host")]
    for name in ("model.safetensors", "checkpoint/step-00000006.safetensors", "predictions.csv", "split.json"):
        first, second = ((run.path / name).read_bytes() for run in runs)
        assert first == second
    assert [run.result["accuracy"] for run in runs] == [runs[0].result["accuracy"]] * 2


def test_a_large_run_on_a_mapped_file_resumes_bit_for_bit(
    tiny_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stopping(Lines):
        def __call__(self, step: int, total: int, record: Record) -> None:
            if step == 4:
                raise RuntimeError("stop")

    images = np.random.default_rng(0).integers(0, 256, (400, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "data.npz", images=images, labels=np.arange(400) // 40)  # sorted by class
    config = tiny_config.replace(data=str(tmp_path / "data.npz"), method="flexmatch", steps=6, checkpoint_every=3)
    for module, name, value in ((pools, "LANES", 32), (pools, "BLOCK", 4), (arrays, "MAPPED", 0)):
        monkeypatch.setattr(module, name, value)
    for module in (pools, job):
        monkeypatch.setattr(module, "LARGE", 100)
    runs = [train(config.replace(pool=choice), tmp_path / choice) for choice in ("device", "host")]
    with pytest.raises(RuntimeError, match="stop"):
        train(config.replace(pool="host"), tmp_path / "resumed", progress=Stopping("stops"))
    runs.append(train(config.replace(pool="host"), tmp_path / "resumed", resume=True))
    for name in ("model.safetensors", "checkpoint/step-00000006.safetensors", "predictions.csv", "split.json"):
        first, *others = ((run.path / name).read_bytes() for run in runs)
        assert others == [first, first]
    assert b'"below": 320' in first
    assert runs[1].split.unlabelled.tolist() == list(range(320))


def test_auto_keeps_images_on_the_gpu_where_they_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    images = some_items(10, images=True)
    small, both = Corpus("small", images), Corpus("both", images, images)
    size, gpu = images.inputs.nbytes, torch.device("cuda")
    monkeypatch.setattr(feeding, "_free_memory", lambda device: 2 * size)
    assert [stays_on_host("auto", corpus, gpu) for corpus in (small, both)] == [False, True]
    assert not stays_on_host("device", both, gpu)
    assert stays_on_host("host", small, gpu)
    assert [stays_on_host(choice, both, CPU) for choice in ("auto", "device", "host")] == [False, False, True]
    monkeypatch.setattr(feeding, "_memory", lambda: 2 * size)
    assert [stays_on_host("auto", corpus, CPU) for corpus in (small, both)] == [False, True]
    assert not stays_on_host("device", both, CPU)
    monkeypatch.setattr(feeding, "_free_memory", lambda device: size)
    with pytest.raises(UserError, match=r"pool is 'device', but the images take .* GB .*: choose 'host' or 'auto'"):
        stays_on_host("device", both, gpu)


def on_gpu(pool: str, config: Config) -> Loop:
    """A captured run on random images; deterministic, so that its bits can be compared."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (600, 32, 32, 3), dtype=np.uint8)
    corpus = Corpus("noise", Dataset(images, np.arange(600) % 10, tuple("abcdefghij")))
    choices = {"data": "cifar10", "test_share": 0.0, "backbone": "wrn-28-2", "device": "cuda", "steps": 50}
    return Loop(prepare(config.replace(pool=pool, deterministic=True, batch=16, ratio=3, **choices), corpus))


@needs_gpu
def test_captured_training_is_the_same_with_either_pool(tiny_config: Config) -> None:
    states = []
    for pool in ("device", "host"):
        loop = on_gpu(pool, tiny_config)
        with loop.job.runtime.scope():
            loop.run()
        states.append(loop.step.state())
    for name, value in states[0].items():
        assert torch.equal(states[1][name], value), name


@needs_gpu
@pytest.mark.parametrize("pool", ["device", "host"])
def test_a_captured_step_never_waits_for_the_device(pool: str, tiny_config: Config) -> None:
    loop = on_gpu(pool, tiny_config)
    with loop.job.runtime.scope():
        try:
            for _ in range(10):
                loop.step()
            torch.cuda.set_sync_debug_mode("error")
            for _ in range(50):
                loop.step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
            loop.step.feed.close()


@needs_gpu
def test_gpu_feeds_give_the_same_tensors_while_the_device_is_behind() -> None:
    """The host runs far ahead of a device that is kept busy: no slot may be written before it was read."""
    draws, dataset = some_draws(300, 50, 16, 7), some_items(300, images=True)
    feeds: list[DeviceFeed | HostFeed] = [DeviceFeed(Pool(dataset, "cuda")), HostFeed(HostPool(dataset, "cuda"), draws)]
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    busy = torch.rand(2048, 2048, device="cuda")
    sent = [[part.cuda() for part in positions(draws, step)] for step in range(100)]
    for step, at in enumerate(sent):
        for feed in feeds:
            feed.prepare(step)
        for _ in range(10):
            busy = (busy @ busy).clamp(-1, 1)
        for a, b in zip(*(feed.images(*at) for feed in feeds), strict=True):
            wrong += (a != b).sum()
    feeds[1].close()
    assert wrong.item() == 0
