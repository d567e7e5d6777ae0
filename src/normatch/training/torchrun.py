"""The processes that torchrun started: connect them, let the first speak, and end all if one has ended."""

import datetime
import hashlib
import os
import platform
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
import torch.distributed as dist

from normatch.device import device_of
from normatch.errors import RESUME, UserError
from normatch.training.distributed import ALONE, World

__all__ = ["joined", "mark", "on_loss", "restarted", "world"]

TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
"""The variables by which torchrun tells a process its place."""

BEAT, SILENCE, BROKEN = 0.5, 15.0, 3.0
"""Seconds between signs of life; without one, after which a process counts as ended; the same once a connection has
broken."""

FOREVER = datetime.timedelta(days=20)
"""The first process may work alone for long, as others wait for it: whether it lives is known by its signs of life."""

LAUNCH = ".launch"
"""The file, in a run's folder, that names the call of torchrun that began the run."""

_world = ALONE
_watch: "_Watch | None" = None


def world() -> World:
    """This process's world: by itself, unless within :func:`joined`."""
    return _world


def on_loss(remedy: str) -> None:
    """What to tell the user to do if another process ends."""
    if _watch is not None:
        _watch.remedy = remedy


@contextmanager
def joined(device: str) -> Iterator[World]:
    """Connect with the other processes of torchrun, if it started this one, while the block runs.

    ``device`` is that of the config; each process of a machine gets a GPU of its own. An error that all have is raised
    by one: others exit. If a process ends, the others stop with KeyboardInterrupt.
    """
    global _world, _watch
    if _world.joined or any(name not in os.environ for name in TORCHRUN):
        yield _world
        return
    rank, size, local = (int(os.environ[name]) for name in TORCHRUN[:3])
    backend = "gloo"
    if device_of(device).type == "cuda":
        if local >= (gpus := torch.cuda.device_count()):
            raise UserError(
                f"process {rank} is number {local} of its machine, which has {gpus} GPUs: lower --nproc-per-node"
            )
        torch.cuda.set_device(local)
        backend = "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend, store=_store(FOREVER), rank=rank, world_size=size, timeout=FOREVER)
    _world, _watch = World(rank, size, True), _Watch(rank, size)
    watch = _watch
    try:
        yield _world
        _world.any(False)  # wait for all: the first process may be the one that keeps the store
    except UserError as error:
        watch.say(str(error), 2)
        raise
    except KeyboardInterrupt as stop:
        watch.say(str(stop), RESUME if str(stop) else 1)
        raise
    except Exception as error:
        if (lost := watch.lost(error)) is None:
            raise
        watch.say(lost, RESUME)
        raise KeyboardInterrupt(lost) from error
    finally:
        _world, _watch = ALONE, None
        dist.destroy_process_group()  # if it waits for a process that has ended, the watch ends this one
        watch.leave()


def mark(run: Path) -> None:
    """Note in a new run's folder which call of torchrun began it, if one did."""
    if launch := _launch():
        (run / LAUNCH).write_text(launch, encoding="utf-8")


def restarted(run: Path) -> bool:
    """Whether torchrun has restarted its processes (``--max-restarts``) since one of them began the run, which then is
    to be continued."""
    if int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)) < 1 or not (run / LAUNCH).is_file():
        return False
    return (run / LAUNCH).read_text(encoding="utf-8") == _launch()


def _launch() -> str:
    """What tells one call of torchrun from another: the run's id, the machine, and torchrun's own process."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return ""
    return f"{os.environ['TORCHELASTIC_RUN_ID']} {platform.node()} {os.getppid()}"


def _store(timeout: datetime.timedelta) -> dist.Store:
    """torchrun's store, without what an earlier attempt left: on one machine, each has the same store."""
    store, _, _ = next(dist.rendezvous("env://", timeout=timeout))
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") if os.environ.get("GROUP_WORLD_SIZE") == "1" else "0"
    return dist.PrefixStore(f"normatch/{attempt}", store)


class _Watch:
    """A thread that gives signs of life, and ends this process if another gives none: it might wait for ever."""

    def __init__(self, rank: int, size: int) -> None:
        self.remedy = "start it again"
        self.leaving = threading.Event()
        self._rank, self._size = rank, size
        self._store = _store(datetime.timedelta(seconds=SILENCE))  # of its own: a store serves one thread at a time
        self._keys = [f"alive/{other}" for other in range(size)]
        self._heard = [time.monotonic()] * size
        self._store.set(self._keys[rank], "0")
        dist.all_reduce(torch.zeros(1))  # wait for all
        works = (self._listen, self._judge) if size > 1 else ()
        self._threads = [threading.Thread(target=work, daemon=True) for work in works]
        for thread in self._threads:
            thread.start()

    def leave(self) -> None:
        """End the threads: one that talks to the store while Python ends would abort the process."""
        self.leaving.set()
        for thread in self._threads:
            thread.join(SILENCE)

    def _listen(self) -> None:
        before, beat = [b""] * self._size, 0
        while not self.leaving.wait(BEAT):
            with suppress(dist.DistError):  # the store may have gone with the process, or the machine, that kept it
                self._store.set(self._keys[self._rank], str(beat := beat + 1))
                beats = self._store.multi_get(self._keys)
                now = time.monotonic()
                changed = [new != old for new, old in zip(beats, before, strict=True)]
                self._heard = [now if new else heard for new, heard in zip(changed, self._heard, strict=True)]
                before = beats

    def _judge(self) -> None:
        # Apart, since the other thread may wait for the store.
        while not self.leaving.wait(BEAT):
            if (lost := self._silent(SILENCE)) is not None:
                time.sleep(BROKEN)  # the main thread may have noticed as well, and knows how to end
                if not self.leaving.is_set():
                    print(f"normatch: stopped; {lost}", file=sys.__stderr__, flush=True)
                    os._exit(RESUME)

    def _silent(self, seconds: float) -> str | None:
        """What to say of the process that has been silent for longest, if for so long."""
        now = time.monotonic()
        silence = [0.0 if other == self._rank else now - heard for other, heard in enumerate(self._heard)]
        longest = max(silence)
        if longest < seconds:
            return None
        return f"process {silence.index(longest)} of {self._size} has ended; {self.remedy}"

    def lost(self, error: Exception) -> str | None:
        """What to say of the process whose end is the reason for an error; None if it has another."""
        text, until = str(error).lower(), time.monotonic() + SILENCE
        broken = isinstance(error, dist.DistError) or "gloo" in text or "nccl" in text
        if broken and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # by torchrun, which has noticed too: let this one end
        while broken and time.monotonic() < until:
            if (lost := self._silent(BROKEN)) is not None:
                return lost
            time.sleep(BEAT / 5)
        return None

    def say(self, text: str, code: int) -> None:
        """Exit with ``code`` if another process says the same already."""
        key = f"said/{hashlib.sha256(text.encode()).hexdigest()}"
        with suppress(dist.DistError):  # the store has gone
            if int(self._store.add(key, 1)) > 1:
                raise SystemExit(code)
