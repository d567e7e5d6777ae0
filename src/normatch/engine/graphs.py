"""Recording work as a CUDA graph, and leaving torch as it was where that fails."""

import contextlib
from collections.abc import Callable, Iterator

import torch

__all__ = ["capture"]


def capture(work: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """Record one call of ``work`` as a graph, without executing it; ``work`` must have run before.

    Where it cannot be recorded its error is raised, and torch is left as if nothing had been tried.
    """
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    # Of this thread alone: a feed's thread may wait for its copies meanwhile.
    with _intact(), torch.cuda.graph(graph, capture_error_mode="thread_local"):
        work()
    return graph


@contextlib.contextmanager
def _intact() -> Iterator[None]:
    stream = torch.cuda.current_stream()
    try:
        yield
    except Exception as error:
        # A recording that fails leaves its own stream current, and in some versions of torch the generator still in its
        # recording state, which a recording that succeeds ends.
        torch.cuda.set_stream(stream)
        torch.cuda.synchronize()
        one = torch.zeros(1, device="cuda")
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            one.add_(1)
        # Ending a recording that has failed raises an error of its own, which hides the first.
        raise error.__context__ or error from None
