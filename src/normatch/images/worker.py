"""The worker process that decodes images: reads pieces of work on standard input, writes results on standard output.

Processes rather than threads, because for small images most of the time is spent holding Python's global lock; and not
``multiprocessing``, which would run the user's script again in each worker.
"""

import os
import pickle
import signal
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from normatch.images.decode import Unreadable, fit, header, memory_for, open_upright
from normatch.images.facts import FACTS, Fact, facts_of

__all__ = ["Form", "Result", "Work", "main", "only_errors", "work"]

Form = tuple[int, int, int]
"""(H, W, C) of the decoded images."""


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


def only_errors() -> None:
    """Silence warnings (of odd metadata), but raise an error for an image too large to decode safely."""
    from PIL import Image

    warnings.simplefilter("ignore")
    warnings.simplefilter("error", Image.DecompressionBombWarning)


def _decode(path: Path, form: Form) -> tuple[Fact, NDArray[np.uint8]]:
    height, width, channels = form
    image, mode = open_upright(path, "L" if channels == 1 else "RGB")
    with memory_for(path):
        return facts_of(image, mode), np.asarray(fit(image, height, width), np.uint8).reshape(form)


def main() -> None:
    """Process pieces of work until standard input is closed."""
    # Ctrl-C is handled by the parent, which closes the input; this process then ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    only_errors()
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as results:
        # Redirect what decoders print to standard error, so that it cannot corrupt the results.
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        while True:
            try:
                piece = pickle.load(sys.stdin.buffer)
            except EOFError:
                return
            pickle.dump(work(piece), results, protocol=5)
            results.flush()
