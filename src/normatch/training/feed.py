"""Supply each step with its inputs: gathered on the device, or read ahead from host memory, which is larger."""

import copy
import math
import os
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from normatch.data import Corpus, HostPool, Pool, Stream
from normatch.errors import UserError
from normatch.training.distributed import ALONE, Part, World

__all__ = ["SLOTS", "DeviceFeed", "Draw", "HostFeed", "stays_on_host"]

SLOTS = 4
"""Number of steps whose inputs are read ahead."""

SHARE = 0.5
"""Inputs that take more than this share of the GPU's free memory, or of the machine's, stay where they are."""

Draw = tuple[Stream, NDArray[np.int64]]
"""A stream of draws, and the positions in the pool of the samples that it draws from."""


def stays_on_host(
    choice: Literal["auto", "device", "host"], corpus: Corpus, device: torch.device, world: World = ALONE
) -> bool:
    """Whether the inputs of ``corpus`` stay in host memory, or in their file: by ``choice`` or, with auto, if the GPU
    has too little for this process's part of them, or the machine for a copy."""
    if choice == "host":
        return True
    whole = sum(part.inputs.nbytes for part in corpus.parts.values())
    if device.type != "cuda":
        return choice == "auto" and whole > SHARE * _memory()
    size, free = whole / world.size, world.least(_free_memory(device))
    if choice == "device" and size > free:
        raise UserError(
            f"pool is 'device', but the images take {size / 1e9:.1f} GB and the GPU has {free / 1e9:.1f} free: "
            "choose 'host' or 'auto'"
        )
    return choice == "auto" and size > SHARE * free


def _memory() -> float:
    """The machine's, in bytes, if it says so."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else math.inf


def _free_memory(device: torch.device) -> int:
    # Memory that torch has cached for future tensors is free too.
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + kept


class DeviceFeed:
    """Gathers the inputs of each step from a pool on the device, inside the step."""

    def __init__(self, pool: Pool | Part) -> None:
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

    def __init__(self, pool: HostPool | Part, draws: Sequence[Draw]) -> None:
        self._part = pool if isinstance(pool, Part) else None
        if isinstance(pool, Part):
            # Of samples that other processes hold, this one reads none: see Part.gather.
            draws = [(stream, pool.rows[samples]) for stream, samples in draws]
        held = pool.own if isinstance(pool, Part) else pool
        assert isinstance(held, HostPool)
        self._inputs = held.inputs
        self._read = held.inputs.ahead(max(stream.neighbours for stream, _ in draws))
        # Copies, because a stream caches recent orders and the caller's thread uses its streams at other steps.
        self._draws = [(copy.copy(stream), samples) for stream, samples in draws]
        shape = (SLOTS, sum(stream.batch for stream, _ in draws), *held.inputs.array.shape[1:])
        self._host = torch.from_numpy(np.zeros(shape, held.inputs.array.dtype))
        self._staging = torch.empty_like(self._host[0], device=pool.device)
        self._copies: torch.cuda.Stream | None = None
        if pool.device.type == "cuda":
            # From pinned memory, the GPU copies asynchronously.
            self._host = self._host.pin_memory()
            self._device = self._host.to(pool.device)
            self._copies = torch.cuda.Stream(pool.device)
            self._copied = [torch.cuda.Event(blocking=True) for _ in range(SLOTS)]
            self._moved = [torch.cuda.Event() for _ in range(SLOTS)]
        self._thread: ThreadPoolExecutor | None = None
        self._ahead: deque[Future[None]] = deque()
        self._next = 0

    def prepare(self, step: int) -> None:
        if self._thread is None or step != self._next:
            self.close()
            if self._copies is not None:
                # Earlier work on memory that was reused for the slots may still be running.
                self._copies.wait_stream(torch.cuda.current_stream(self._staging.device))
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="normatch-feed")
            self._ahead.extend(self._thread.submit(self._fill, step + ahead) for ahead in range(SLOTS))
        # Left in the queue if it failed, so that further calls raise the error too.
        self._ahead[0].result()
        self._ahead.popleft()
        slot = step % SLOTS
        if self._copies is None:
            self._staging.copy_(self._host[slot])
        else:
            current = torch.cuda.current_stream(self._staging.device)
            current.wait_event(self._copied[slot])
            self._staging.copy_(self._device[slot], non_blocking=True)
            self._moved[slot].record(current)
        self._ahead.append(self._thread.submit(self._fill, step + SLOTS))
        self._next = step + 1

    def _fill(self, step: int) -> None:
        """In the background thread: read the inputs of a step into its slot and, for a GPU, copy them there."""
        slot = step % SLOTS
        drawn = [samples[stream.rows(step, 1)[0].numpy()] for stream, samples in self._draws]
        if self._copies is not None:
            self._copied[slot].synchronize()  # the slot's previous copy may still be reading it
        rows = np.concatenate(drawn)
        self._read(rows.clip(0))
        self._inputs.take(rows.clip(0), self._host[slot].numpy())
        if self._part is not None:
            self._host[slot, rows < 0] = 0
        if self._copies is not None:
            with torch.cuda.stream(self._copies):
                self._copies.wait_event(self._moved[slot])
                self._device[slot].copy_(self._host[slot], non_blocking=True)
                self._copied[slot].record(self._copies)

    def images(self, *positions: Tensor) -> tuple[Tensor, ...]:
        inputs = self._staging if self._part is None else self._part.world.total(self._staging.clone())
        parts = inputs.split([len(at) for at in positions])
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
