"""Capture work as a CUDA graph, restoring torch's state if that fails."""

import contextlib
from collections.abc import Callable, Iterator

import torch

__all__ = ["capture"]


def capture(work: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """Record one call of ``work`` as a graph, without executing it; ``work`` must have run before.

    If it cannot be recorded, its error is raised, and torch's state is as before the attempt.
    """
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    # thread_local: the background thread of a feed may synchronise meanwhile, which must not break the capture.
    with _restored_on_error(), torch.cuda.graph(graph, capture_error_mode="thread_local"):
        work()
    return graph


@contextlib.contextmanager
def _restored_on_error() -> Iterator[None]:
    stream = torch.cuda.current_stream()
    try:
        yield
    except Exception as error:
        # A failed capture leaves its stream current and, in some versions of torch, the generator in capturing state,
        # which a successful capture ends.
        torch.cuda.set_stream(stream)
        torch.cuda.synchronize()
        one = torch.zeros(1, device="cuda")
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            one.add_(1)
        # Ending a failed capture raises another error, which hides the first.
        raise error.__context__ or error from None
