"""Graphs of a step: whether its code was compiled as one, and its capture as a CUDA graph."""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator

import torch

__all__ = ["capture", "compiling"]


@contextlib.contextmanager
def compiling() -> Iterator[list[str]]:
    """A list that holds, after the block, why code that it compiled is in pieces: torch's reason for each break.

    Within the block torch compiles a step as often as one differs from those before it in this process, instead of
    eight times, after which it would leave the code as it is.
    """
    # Imported where something is compiled: it takes a second.
    from torch._dynamo import config
    from torch._dynamo.utils import counters

    before = Counter(counters["graph_break"])
    reasons: list[str] = []
    with config.patch(recompile_limit=config.accumulated_recompile_limit):
        yield reasons
    reasons += map(_explained, (Counter(counters["graph_break"]) - before).elements())


def _explained(reason: str) -> str:
    """The line that explains: recent versions of torch give a heading, an explanation and hints."""
    lines = [line.strip() for line in reason.splitlines()]
    found = [line.removeprefix("Explanation: ") for line in lines if line.startswith("Explanation: ")]
    return (found or lines)[0]


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
