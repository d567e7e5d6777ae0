"""Decode pieces of work on all cores, with the results in order."""

import os
import pickle
import queue
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import normatch
from normatch.data.images.cores import cores
from normatch.data.images.worker import Result, Work, only_errors, work

__all__ = ["Crew", "crew"]

FEW = 500
"""Up to this many files, threads finish before processes would have started."""

Crew = Callable[[Iterable[Work]], Iterator[Result]]


@contextmanager
def crew(files: int) -> Iterator[Crew]:
    """A function that does pieces of work in parallel: in threads if there are few files, else in processes.

    When the block ends early, as by Ctrl-C, nothing waits for pieces that have not begun, nor for the processes.
    """
    n = cores()
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(n))
        if files <= FEW:
            stack.enter_context(only_errors())
            do: Callable[[Work], Result] = work
        else:
            do = _shared([stack.enter_context(_Process()) for _ in range(n)])
        stack.callback(pool.shutdown, wait=False, cancel_futures=True)
        yield lambda pieces: _in_order(pool, do, pieces, ahead=2 * n)


def _in_order(
    pool: ThreadPoolExecutor, do: Callable[[Work], Result], pieces: Iterable[Work], ahead: int
) -> Iterator[Result]:
    """Like ``pool.map``, but at most ``ahead`` pieces ahead of the caller, so that results do not pile up in memory."""
    under_way: deque[Future[Result]] = deque()
    for piece in pieces:
        under_way.append(pool.submit(do, piece))
        if len(under_way) > ahead:
            yield under_way.popleft().result()
    while under_way:
        yield under_way.popleft().result()


def _shared(processes: "list[_Process]") -> Callable[[Work], Result]:
    """A function that hands each piece of work to a free process and returns the result."""
    free: queue.SimpleQueue[_Process] = queue.SimpleQueue()
    for process in processes:
        free.put(process)

    def do(piece: Work) -> Result:
        process = free.get()
        try:
            return process.ask(piece)
        finally:
            free.put(process)

    return do


class _Process:
    """A child process that runs :mod:`normatch.data.images.worker`."""

    def __enter__(self) -> "_Process":
        # The child imports the same modules as this process, and none from the current folder (-P), unless this package
        # itself comes from there.
        folder = str(Path(normatch.__file__).parents[1])
        places = [*([] if folder in sys.path else [folder]), *filter(None, sys.path)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(places)}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", "from normatch.data.images.worker import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._results = self._process.stdin, self._process.stdout
        return self

    def ask(self, piece: Work) -> Result:
        try:
            pickle.dump(piece, self._requests, protocol=5)
            self._requests.flush()
            result: Result = pickle.load(self._results)
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            # The process ended before or while sending its result.
            code = self._process.wait()
            raise RuntimeError(f"a process that decodes images ended with code {code}, at {piece.paths[0]}") from error
        return result

    def __exit__(self, *_: object) -> None:
        # communicate() closes the pipes and waits; results still in the pipe are dropped.
        self._process.terminate()
        self._process.communicate()
