"""Work that runs side by side on a GPU, because each part of it is too small to fill it."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

__all__ = ["Lanes"]


class Lanes:
    """Streams of a GPU, in a captured graph its branches; a CPU does the same work in its order.

    Within :meth:`open`, ``lanes[i]`` is a context: its work may use all that was made before :meth:`open`, or earlier
    in the same lane. What it makes may be used by all after :meth:`open`.
    """

    def __init__(self, count: int, device: torch.device) -> None:
        self._streams = [torch.cuda.Stream(device) for _ in range(count)] if device.type == "cuda" else []

    @contextmanager
    def open(self) -> Iterator[None]:
        for stream in self._streams:
            stream.wait_stream(torch.cuda.current_stream(stream.device))
        yield
        for stream in self._streams:
            torch.cuda.current_stream(stream.device).wait_stream(stream)

    def __getitem__(self, lane: int) -> AbstractContextManager[None]:
        """The lane of this number, counted round and round."""
        if not self._streams:
            return nullcontext()
        return torch.cuda.stream(self._streams[lane % len(self._streams)])
