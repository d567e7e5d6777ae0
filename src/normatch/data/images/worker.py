"""The worker process that decodes images: reads pieces of work on standard input, writes results on standard output.

Processes rather than threads, because for small images most of the time is spent holding Python's global lock; and not
``multiprocessing``, which would run the user's script again in each worker.
"""

import os
import pickle
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from normatch.data.images.decode import Form, Unreadable, header, open_upright, pixels
from normatch.data.images.facts import FACTS, Fact, facts_of

__all__ = ["Result", "Work", "main", "only_errors", "work"]

_LOCK, _OPEN, _ADDED = threading.Lock(), list[None](), list[Any]()
"""Of :func:`only_errors`: the open contexts, and the filters that the first of them added."""

NO_THUMBNAIL = np.zeros(FACTS["thumbnail"].shape, np.uint8)


@dataclass(frozen=True)
class Work:
    """Image files to decode to one form; if it is None, only their headers are read."""

    paths: tuple[str, ...]
    form: Form | None


@dataclass(frozen=True)
class Result:
    """Facts and pixels of the readable files, in order; ``bad`` has (position, reason, lasting) of each other file."""

    facts: NDArray[Any]
    pixels: NDArray[np.uint8]
    bad: tuple[tuple[int, str, bool], ...]


def work(piece: Work) -> Result:
    """Decode the files of one piece of work."""
    facts: list[Fact] = []
    pixels: list[NDArray[np.uint8]] = []
    bad: list[tuple[int, str, bool]] = []
    for i, name in enumerate(piece.paths):
        try:
            if piece.form is None:
                facts.append((*header(Path(name)), 0, 0, NO_THUMBNAIL))
            else:
                fact, image = _decode(Path(name), piece.form)
                facts.append(fact)
                pixels.append(image)
        except Unreadable as error:
            bad.append((i, error.why, error.lasting))
    shape = (len(pixels), *(piece.form or (0, 0, 0)))
    return Result(np.array(facts, FACTS), np.array(pixels, np.uint8).reshape(shape), tuple(bad))


@contextmanager
def only_errors() -> Iterator[None]:
    """A context that silences the warnings of decoding (of odd metadata), but raises an error for an image too large to
    decode safely.

    Filters of warnings are the whole process's, and several such contexts may be open, in threads and in generators
    that wait: so the first adds two filters, which concern no other code, and the last takes away these two.
    """
    from PIL import Image

    with _LOCK:
        if not _OPEN:
            warnings.filterwarnings("ignore", module=r"(PIL|normatch\.images)\.")
            warnings.filterwarnings("error", category=Image.DecompressionBombWarning)
            _ADDED[:] = warnings.filters[:2]
        _OPEN.append(None)
    try:
        yield
    finally:
        with _LOCK:
            _OPEN.pop()
            if not _OPEN:
                warnings.filters[:] = [  # type: ignore[index]
                    f for f in warnings.filters if not any(f is added for added in _ADDED)
                ]
                with warnings.catch_warnings():  # so that what was decided by the two is forgotten
                    pass


def _decode(path: Path, form: Form) -> tuple[Fact, NDArray[np.uint8]]:
    image, seen = open_upright(path, form)
    try:
        return facts_of(image, seen), pixels(image, form)
    except MemoryError as error:
        raise Unreadable(path, error) from error


def main() -> None:
    """Process pieces of work until standard input is closed."""
    # Ctrl-C is handled by the parent, which closes the input; this process then ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with only_errors(), os.fdopen(os.dup(sys.stdout.fileno()), "wb") as results:
        # Redirect what decoders print to standard error, so that it cannot corrupt the results.
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        while True:
            try:
                piece = pickle.load(sys.stdin.buffer)
            except EOFError:
                return
            pickle.dump(work(piece), results, protocol=5)
            results.flush()
