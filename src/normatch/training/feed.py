"""Supply each step with its inputs: gathered on the device, or read ahead from host memory, which is larger."""

import copy
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from normatch.data import Corpus, HostPool, Pool, Stream
from normatch.errors import UserError

__all__ = ["SLOTS", "DeviceFeed", "Draw", "HostFeed", "stays_on_host"]

SLOTS = 4
"""Number of steps whose inputs are read ahead."""

SHARE = 0.5
"""Inputs that take more than this share of the GPU's free memory stay on the host."""

Draw = tuple[Stream, NDArray[np.int64]]
"""A stream of draws, and the positions in the pool of the samples that it draws from."""


def stays_on_host(choice: Literal["auto", "device", "host"], corpus: Corpus, device: torch.device) -> bool:
    """Whether the inputs of ``corpus`` stay in host memory: by ``choice`` or, with auto, if the GPU has too little."""
    if choice == "host" or device.type != "cuda":
        return choice == "host"
    size = corpus.train.inputs.nbytes + (0 if corpus.test is None else corpus.test.inputs.nbytes)
    free = _free_memory(device)
    if choice == "device" and size > free:
        raise UserError(
            f"pool is 'device', but the images take {size / 1e9:.1f} GB and the GPU has {free / 1e9:.1f} free: "
            "choose 'host' or 'auto'"
        )
    return choice == "auto" and size > SHARE * free


def _free_memory(device: torch.device) -> int:
    # Memory that torch has cached for future tensors is free too.
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + kept


class DeviceFeed:
    """Gathers the inputs of each step from a pool on the device, inside the step."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def prepare(self, step: int) -> None:
        """Host work before ``step``; never waits for the device."""

    def images(self, *positions: Tensor) -> tuple[Tensor, ...]:
        """The inputs of the prepared step, (B, C, H, W) or (B, D) for each of its draws.

        ``positions`` (B,) are their positions in the pool. Only device work, suited to a CUDA graph.
        """
        return tuple(self._pool.gather(at) for at in positions)

    def close(self) -> None:
        """Stop background work; a later step starts it again."""


class HostFeed:
    """Reads the inputs of the next steps ahead in a background thread, since the draws of all steps are known.

    The thread fills a ring of slots; preparing a step moves its slot to one staging tensor, which keeps its address. On
    a GPU, slots are copied on a separate stream while earlier steps compute; the streams synchronise by events, without
    the host.
    """

    def __init__(self, pool: HostPool, draws: Sequence[Draw]) -> None:
        self._inputs = pool.inputs
        # Copies, because a stream caches recent orders and the caller's thread uses its streams at other steps.
        self._draws = [(copy.copy(stream), items) for stream, items in draws]
        shape = (sum(stream.batch for stream, _ in draws), *pool.inputs.array.shape[1:])
        host = torch.from_numpy(np.zeros(shape, pool.inputs.array.dtype))
        self._staging = host.to(pool.device)
        self._copies = torch.cuda.Stream(pool.device) if pool.device.type == "cuda" else None
        self._slots = [_Slot(host) if self._copies is None else _CudaSlot(host, self._copies) for _ in range(SLOTS)]
        self._thread: ThreadPoolExecutor | None = None
        self._ahead: deque[Future[_Slot]] = deque()
        self._next = 0

    def prepare(self, step: int) -> None:
        if self._thread is None or step != self._next:
            self.close()
            self._start(step)
        # Left in the queue if it failed, so that further calls raise the error too.
        slot = self._ahead[0].result()
        self._ahead.popleft()
        slot.move_to(self._staging)
        self._read_ahead(step + SLOTS, slot)
        self._next = step + 1

    def images(self, *positions: Tensor) -> tuple[Tensor, ...]:
        parts = self._staging.split([len(at) for at in positions])
        # Copied, since staging is overwritten; in the layout of DeviceFeed, since the layout affects the last bits.
        return tuple(
            (part.permute(0, 3, 1, 2) if part.ndim == 4 else part).clone(memory_format=torch.contiguous_format)
            for part in parts
        )

    def close(self) -> None:
        if self._thread is None:
            return
        self._thread.shutdown(cancel_futures=True)
        self._thread = None
        self._ahead.clear()
        if self._copies is not None:
            # Wait for copies under way: the slots' memory may be freed after this.
            self._copies.synchronize()

    def _start(self, step: int) -> None:
        if self._copies is not None:
            # Earlier work on memory that was reused for the slots may still be running.
            self._copies.wait_stream(torch.cuda.current_stream(self._staging.device))
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="normatch-feed")
        for ahead, slot in enumerate(self._slots):
            self._read_ahead(step + ahead, slot)

    def _read_ahead(self, step: int, slot: "_Slot") -> None:
        assert self._thread is not None
        self._ahead.append(self._thread.submit(self._fill, step, slot))

    def _fill(self, step: int, slot: "_Slot") -> "_Slot":
        drawn = [samples[stream.rows(step, 1)[0].numpy()] for stream, samples in self._draws]
        positions = np.concatenate(drawn)
        slot.fill(lambda out: self._inputs.take(positions, out))
        return slot


class _Slot:
    """A buffer in host memory for the inputs of one step."""

    def __init__(self, like: Tensor, *, pinned: bool = False) -> None:
        self._host = torch.empty_like(like, pin_memory=pinned)

    def fill(self, read: Callable[[NDArray[np.generic]], None]) -> None:
        read(self._host.numpy())

    def move_to(self, staging: Tensor) -> None:
        staging.copy_(self._host)


class _CudaSlot(_Slot):
    """A buffer in pinned memory, from which the GPU copies asynchronously, and one on the GPU."""

    def __init__(self, like: Tensor, copies: torch.cuda.Stream) -> None:
        super().__init__(like, pinned=True)
        self._device = torch.empty_like(like, device=copies.device)
        self._copies = copies
        self._copied = torch.cuda.Event(blocking=True)
        self._moved = torch.cuda.Event()

    def fill(self, read: Callable[[NDArray[np.generic]], None]) -> None:
        # The slot's previous copy may still be reading it. Only the background thread waits here.
        self._copied.synchronize()
        super().fill(read)
        with torch.cuda.stream(self._copies):
            self._copies.wait_event(self._moved)
            self._device.copy_(self._host, non_blocking=True)
            self._copied.record(self._copies)

    def move_to(self, staging: Tensor) -> None:
        current = torch.cuda.current_stream(staging.device)
        current.wait_event(self._copied)
        staging.copy_(self._device, non_blocking=True)
        self._moved.record(current)
