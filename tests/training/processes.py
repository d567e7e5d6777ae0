"""What the tests of several processes run in each of them."""

import contextlib
import copy
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from normatch import cli, recipes
from normatch.data import Corpus, Dataset, HostPool, Pool, Stream, pool
from normatch.data.dataset import Selected
from normatch.methods import Embedding, methods
from normatch.nets.model import Normalise
from normatch.nets.norm import synchronise
from normatch.nets.partial import join, normalise, parts_of
from normatch.training import torchrun
from normatch.training.distributed import Part
from normatch.training.feed import HostFeed
from normatch.training.job import prepare
from normatch.training.loop import Loop
from normatch.training.step import Step
from normatch.training.torchrun import joined, world
from normatch.training.train import train

LONG = 100
"""Steps of the runs of NorMatch and FixMatch."""

RUNS: dict[str, dict[str, Any]] = {
    "normatch": {"steps": LONG},
    "normatch shared": {"steps": 12, "passes": "shared", "flow_ramp": 1},
    "fixmatch": {"steps": LONG, "threshold": 0.5, "alignment": True},
    **{name: {} for name in methods.names() if name not in ("normatch", "fixmatch")},
    "normatch accumulate": {"accumulate_mixture": True, "flow_ramp": 0},
    "simmatch teacher": {"bank": "teacher"},
    "vat twice": {"iterations": 2, "entropy": 1.0},
}
"""Settings by the method's name and what is special about them."""

BY_THREE = ("normatch", "normatch shared", "fixmatch", "mixmatch", "comatch", "laplacenet", "vat twice")
"""Runs that three processes do as well; their number matters to the engine, hardly to a method."""


def start(rank: int, size: int, port: int, out: Path, work: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """Do ``work`` in process ``rank`` as torchrun would start it, or without torchrun if ``size`` is 0. Files take what
    it returns and what it says."""
    torch.set_num_threads(1)
    if size:
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank))
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    with (out / f"{rank}.log").open("w", buffering=1) as log:
        setattr(sys, "__stderr__", log)  # noqa: B010
        with contextlib.redirect_stderr(log):
            torch.save(work(*args), out / f"{rank}.pt")


@contextlib.contextmanager
def doubled() -> Iterator[None]:
    """All in float64: in float32, runs that round differently drift apart as fast as training amplifies anything."""
    before = Tensor.float, Normalise.forward

    def normalised(self: Normalise, x: Tensor) -> Tensor:
        return (x.double() - self.mean) / self.std

    Tensor.float, Normalise.forward = Tensor.double, normalised  # type: ignore[method-assign]
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)
        Tensor.float, Normalise.forward = before  # type: ignore[method-assign]


def together() -> dict[str, Any]:
    """All that several processes do without files; of one, the runs."""
    with joined("cpu") as those:
        found = {"runs": runs(BY_THREE if those.size == 3 else tuple(RUNS)), "mapped": mapped()}
        return found if those.size == 1 else found | {"norms": norms(), "pools": pools()}


def runs(names: tuple[str, ...]) -> dict[str, Any]:
    with doubled():
        return {name: run(name.split()[0], **RUNS[name]) for name in names}


def run(method: str, steps: int = 4, **settings: Any) -> dict[str, Any]:
    """The losses of a run of few images, what it holds at the end, and what it reaches."""
    draw = np.random.default_rng(0)
    images, labels = draw.integers(0, 256, (40, 8, 8, 1), dtype=np.uint8), np.arange(40) % 3
    images[:, 2:6, 2:6] //= (labels[:, None, None, None] + 1).astype(np.uint8)
    config = recipes.digits(labels=9).replace(method=method, steps=steps, epoch=2, batch=6, ratio=1, validation=0.2)
    config = config.replace(test_share=0.2, settings=methods.get(method).Settings(**settings))
    job = prepare(config, Corpus("tiny", Dataset(images, labels, ("bird", "cat", "dog"))))
    job.method.double()
    losses = []
    with job.runtime.scope():
        loop = Loop(job)
        loop.step.method.train()
        for step in range(steps):
            if step % 2 == 0:
                job.method.begin_epoch(step // 2, lambda: _rounded(loop._embed()))
            loop.step()
            losses.append(loop.step.meter.read()["loss"])
        state = {name: value.clone() for name, value in loop.step.state().items()}
        return {"losses": losses, "state": state, "record": loop.evaluate()}


def mapped() -> dict[str, Any]:
    """The losses of a run that counts as large, on a file, and the rows of the file that this process reads for it."""
    take, read = Selected.take, set()

    def taking(self: Selected, positions: NDArray[np.int64], out: NDArray[Any]) -> None:
        read.update(self.index[positions].tolist())
        take(self, positions, out)

    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryFile() as file, doubled():
        for name, value in (("LARGE", 10), ("LANES", 8), ("BLOCK", 3)):
            patch.setattr(pool, name, value)
        patch.setattr(Selected, "take", taking)
        np.random.default_rng(0).integers(0, 256, (60, 8, 8, 1), dtype=np.uint8).tofile(file)
        images = np.memmap(file, np.uint8, "r", shape=(60, 8, 8, 1))
        config = recipes.digits(labels=9).replace(method="fixmatch", steps=20, epoch=20, batch=6, ratio=1, pool="host")
        labels = np.arange(60) // 20
        job = prepare(config.replace(test_share=0.0), Corpus("tiny", Dataset(images, labels, ("bird", "cat", "dog"))))
        job.method.double()
        with job.runtime.scope():
            step = Loop(job).step
            for _ in range(20):
                step()
            step.close()
            return {"read": read, "loss": step.meter.read()["loss"]}


def _rounded(found: Embedding) -> Embedding:
    """CREPE asks which of its numbers are equal, which the last bits of its inputs decide."""
    return Embedding(found.labelled.round(decimals=9), found.labels, found.unlabelled.round(decimals=9))


def norms() -> dict[str, list[float]]:
    """By how much synchronised batch norm differs from torch's, which has the whole batch."""
    share, found = world(), {}
    for name, kind, shape, learning in (
        ("vectors", nn.BatchNorm1d, (12, 4), None),
        ("images", nn.BatchNorm2d, (12, 4, 5, 5), None),
        ("images of which half learn", nn.BatchNorm2d, (12, 4, 5, 5), 6),
    ):
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(shape, dtype=torch.float64, generator=generator) * 2 + 3
        g = torch.randn(shape, dtype=torch.float64, generator=generator)
        g[learning:] = 0
        whole: Any = kind(4).double()
        nn.init.uniform_(whole.weight, 0.5, 1.5)
        synced = copy.deepcopy(whole)
        synchronise(synced_in := nn.Sequential(synced), share)
        ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
        if learning is None:
            y, z = share.gather(synced_in(share.take(ours))), whole(theirs)
        else:
            y = share.gather(join(normalise(synced, parts_of(share.take(ours), learning // share.size))))
            z = join(normalise(whole, parts_of(theirs, learning)))
        (y * g).sum().backward()
        (z * g).sum().backward()
        share.average_gradients(synced.parameters())
        pairs = [(y, z), (ours.grad, theirs.grad), *zip(synced.buffers(), whole.buffers(), strict=True)]
        pairs += [(a.grad, b.grad) for a, b in zip(synced.parameters(), whole.parameters(), strict=True)]
        found[name] = [(a - b).abs().max().item() for a, b in pairs]
    return found


def pools() -> dict[str, bool]:
    """Whether what shared pools give is what whole ones do."""
    draw, found = np.random.default_rng(0), dict[str, bool]()
    index = torch.tensor([3, 0, 10, 3, 7])
    for name, inputs in (
        ("images", draw.integers(0, 256, (11, 4, 4, 3), dtype=np.uint8)),
        ("vectors", draw.normal(size=(11, 5)).astype(np.float32)),
    ):
        data = Dataset(inputs, np.arange(11) % 3, ("a", "b", "c"))
        whole, part = Pool(data), Part(lambda part, own: Pool(part), data, world())
        some = part.subset(index).subset(torch.tensor([4, 1]))
        own = torch.cat([whole.inputs[:0], *some.own.inputs.split(2)])
        draws = [(Stream(11, 4, 0, "any"), np.arange(11))]
        feeds = HostFeed(HostPool(data), draws), HostFeed(Part(lambda p, own: HostPool(p), data, world()), draws)
        for feed in feeds:
            feed.prepare(0)
        (expected,), (read,) = (feed.images(torch.zeros(4)) for feed in feeds)
        for feed in feeds:
            feed.close()
        found |= {
            f"{name} drawn": torch.equal(part.gather(index), whole.gather(index)),
            f"{name} of a part of a part": torch.equal(some.of_all(own), whole.inputs[[7, 0]]),
            f"labels of {name}": torch.equal(some.labels, whole.labels[[7, 0]]),
            f"{name} read from the host": torch.equal(read, expected),
            f"{name} held": len(part.own) <= -(-11 // world().size) and len(part) == 11,
        }
    return found


CONFIG = recipes.digits(labels=20).replace(
    steps=12, epoch=4, batch=6, ratio=1, log_every=2, evaluate_every=4, checkpoint_every=3
)


def until(step: int, rank: int, number: int) -> None:
    """Before that step, process ``rank`` sends itself a signal."""
    call = Step.__call__

    def stepping(self: Step) -> None:
        if self.done == step and self.runtime.world.rank == rank:
            os.kill(os.getpid(), number)
        call(self)

    Step.__call__ = stepping  # type: ignore[method-assign]


def stopped(out: Path, step: int, rank: int, resume: bool) -> tuple[str, int]:
    """Train until one process gets SIGTERM; how all end."""
    until(step, rank, signal.SIGTERM)
    with doubled():
        return _ended(lambda: train(CONFIG, out, resume=resume))


def killed(out: Path, step: int, rank: int) -> tuple[str, int]:
    """Train until one process is killed; how the others end."""
    until(step, rank, signal.SIGKILL)
    return _ended(lambda: train(CONFIG, out))


def bereft(silence: float) -> None:
    """One process ends, and the others wait for something else."""
    with joined("cpu") as those:
        torchrun.on_loss("remedy")
        if those.rank == 1:
            os._exit(0)
        torchrun.SILENCE = torchrun.BROKEN = silence  # not before: on a busy machine it takes long to meet
        signal.pause()


def command(*words: str) -> tuple[str, int]:
    """The command line."""
    return _ended(lambda: sys.exit(cli.main(words)))


def _ended(action: Callable[[], object]) -> tuple[str, int]:
    """The message and the exit code."""
    try:
        action()
    except KeyboardInterrupt as stop:
        return str(stop), 75
    except SystemExit as end:
        return "", int(end.code or 0)
    return "", 0


if __name__ == "__main__":  # by torchrun, with the folder of a run
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        until(7, 1, signal.SIGKILL)
    fields = ["steps", "epoch", "batch", "ratio", "log_every", "evaluate_every", "checkpoint_every"]
    flags = [word for name in fields for word in (f"--{name.replace('_', '-')}", str(getattr(CONFIG, name)))]
    sys.exit(cli.main(["train", "digits-40", *flags, "--out", sys.argv[1]]))
