"""Many images as one array: files decoded to one size in threads, or read from the cache; arrays resized."""

import math
import os
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from normatch.data.images.cache import Cache, Entry
from normatch.data.images.decode import (
    GREY,
    SIZES,
    BadImages,
    Channels,
    Form,
    Size,
    Unreadable,
    header,
    open_upright,
    pixels,
)
from normatch.data.images.facts import FACTS, Fact, facts_of

__all__ = [
    "DEFAULT",
    "Decoded",
    "DecodingProgress",
    "OnBad",
    "Reading",
    "decode_all",
    "decode_batches",
    "resize_all",
]

OnBad = Literal["stop", "skip"]
"""On unreadable images: raise an error, or skip and list them."""

DecodingProgress = Callable[[int, int], None]
"""Called with the number of files done and the number of all files."""

PIECE_FILES, PIECE_BYTES = 32, 1 << 24
"""Most images that are written at once, and their approximate size."""

A = TypeVar("A")
B = TypeVar("B")


def _silent(done: int, total: int) -> None:
    """Shows nothing."""


@dataclass(frozen=True)
class Reading:
    """How image files are read, which does not affect the result: whether to cache, and what to call on progress."""

    cache: bool = True
    progress: DecodingProgress = _silent

    def open_cache(self) -> Cache | None:
        return Cache() if self.cache else None


DEFAULT = Reading()


@dataclass(frozen=True)
class Decoded:
    """``images`` (N, H, W, C) and their ``facts``; ``kept`` are the positions of their paths; ``bad`` has a line
    (path and reason) for each unreadable file."""

    images: NDArray[np.uint8]
    facts: NDArray[Any]
    kept: NDArray[np.int64]
    bad: tuple[str, ...]


def decode_all(
    paths: Sequence[Path],
    *,
    size: Size | None = None,
    channels: Channels | None = None,
    largest: int = SIZES[-1],
    on_bad: OnBad = "stop",
    cache: Cache | None = None,
    progress: DecodingProgress = _silent,
) -> Decoded:
    """Decode all images to one size.

    Without ``size``, images of equal size keep it if it is at most ``largest``; otherwise all become squares of the
    largest of :data:`SIZES` that exceeds neither the median of the shorter sides nor ``largest``. Without ``channels``,
    there is one if all images are grey, else three. With ``cache``, files that have not changed since they were last
    decoded are not decoded again.
    """
    key = cache.key(paths) if cache else ""
    form: Form | None = (*_sides(size), channels) if size and channels else None
    if form is None:
        facts = cache.facts(key) if cache else None
        if facts is None:
            facts = _gathered(_attempts(paths, None), (0, 0, 0)).facts
        form = _form(facts, size, channels, largest)
    entry = cache.open(key, form) if cache else None
    if entry is None:
        pieces = _pieces(paths, form, progress)
        entry = cache.write(key, form, pieces) if cache else _in_memory(paths, form, pieces)
    return _result(paths, entry, on_bad)


def decode_batches(
    paths: Sequence[Path], batch: int, *, size: Size, channels: Channels, on_bad: OnBad = "stop"
) -> Iterator[Decoded]:
    """The images in batches, each decoded while the caller works on the previous one: at most two are in memory.

    ``kept`` are positions in ``paths``, not in the batch.
    """
    form = *_sides(size), channels
    with closing(_attempts(paths, form, ahead=batch)) as attempts:
        for start in range(0, len(paths), batch):
            entry = _gathered(islice(attempts, batch), form, start)
            yield _result(paths, entry, on_bad, range(start, min(start + batch, len(paths))))


def resize_all(images: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """Images (N, H, W, C) scaled and centre-cropped to ``size`` × ``size``, as files are (:func:`decode.fit`)."""
    from PIL import Image

    if images.shape[1:3] == (size, size):
        return images
    out = np.empty((len(images), size, size, images.shape[3]), np.uint8)
    flat = images[..., 0] if images.shape[3] == 1 else images

    def resize(i: int) -> None:
        out[i] = pixels(Image.fromarray(flat[i]), (size, size, out.shape[3]))

    deque(_in_threads(resize, range(len(images))), maxlen=0)
    return out


def _in_threads(do: Callable[[A], B], things: Iterable[A], ahead: int = 64) -> Generator[B, None, None]:
    """``do`` of each thing, in order and at most ``ahead`` of the caller, so that results do not pile up in memory.

    Threads, because Pillow decodes and resizes without Python's global lock.
    """
    pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())
    under_way: deque[Future[B]] = deque()
    try:
        for thing in things:
            under_way.append(pool.submit(do, thing))
            if len(under_way) == ahead:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _result(paths: Sequence[Path], entry: Entry, on_bad: OnBad, positions: range | None = None) -> Decoded:
    """The entry as a result; ``positions`` are those of its files, by default all."""
    bad = tuple(f"{paths[i]}: {why}" for i, why in entry.bad.items())
    if bad and on_bad == "stop":
        more = f", and {len(bad) - 1:,} more, which `normatch data inspect` lists" if len(bad) > 1 else ""
        raise BadImages(f"cannot read image {bad[0]}{more}; replace or remove {'them' if more else 'it'}")
    kept = np.setdiff1d(positions or range(len(paths)), np.array(list(entry.bad), np.int64))
    return Decoded(entry.images, entry.facts, kept, bad)


def _sides(size: Size) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else size


def _form(facts: NDArray[Any], size: Size | None, channels: Channels | None, largest: int) -> Form:
    if channels is None:
        grey = {mode.encode() for mode in GREY}
        channels = 1 if len(facts) and set(facts["mode"].tolist()) <= grey else 3
    if size is not None:
        return *_sides(size), channels
    seen = set(zip(facts["height"].tolist(), facts["width"].tolist(), strict=True))
    if len(seen) == 1 and max(next(iter(seen))) <= largest:
        return *seen.pop(), channels
    limit = min(float(np.median(np.minimum(facts["height"], facts["width"]))), largest) if len(facts) else 0
    side = max((size for size in SIZES if size <= limit), default=min(SIZES[0], largest))
    return side, side, channels


Attempt = tuple[Fact, NDArray[np.uint8]] | Unreadable


def _attempts(paths: Sequence[Path], form: Form | None, ahead: int = 64) -> Generator[Attempt, None, None]:
    """Each file's facts and pixels in that form, or why it cannot be read; without a form, the facts of its header."""

    def attempt(path: Path) -> Attempt:
        try:
            if form is None:
                return (*header(path), 0, 0, np.zeros(FACTS["thumbnail"].shape, np.uint8)), np.empty(0, np.uint8)
            image, seen = open_upright(path, form)
            return facts_of(image, seen), pixels(image, form)
        except Unreadable as error:
            return error
        except (MemoryError, ValueError) as error:  # of scaling
            return Unreadable(path, error)

    # Pillow warns of odd metadata. Filters are the whole process's: this one is for the threads, and stays.
    warnings.filterwarnings("ignore", module=r"PIL\.")
    return _in_threads(attempt, paths, ahead)


def _gathered(attempts: Iterable[Attempt], form: Form, start: int = 0) -> Entry:
    """The images that could be read, those of files from position ``start`` on."""
    facts: list[Fact] = []
    images: list[NDArray[np.uint8]] = []
    bad: dict[int, Unreadable] = {}
    for i, found in enumerate(attempts, start):
        if isinstance(found, Unreadable):
            bad[i] = found
        else:
            facts.append(found[0])
            images.append(found[1])
    stacked = np.array(images, np.uint8).reshape(len(images), *form)
    lasting = all(error.lasting for error in bad.values())
    return Entry(stacked, np.array(facts, FACTS), {i: error.why for i, error in bad.items()}, lasting)


def _pieces(paths: Sequence[Path], form: Form, progress: DecodingProgress) -> Iterator[Entry]:
    """All images, a few at a time; at least one piece, which may be empty."""
    each = max(1, min(PIECE_FILES, PIECE_BYTES // math.prod(form)))
    with closing(_attempts(paths, form)) as attempts:
        for start in range(0, max(1, len(paths)), each):
            yield _gathered(islice(attempts, each), form, start)
            progress(min(start + each, len(paths)), len(paths))


def _in_memory(paths: Sequence[Path], form: Form, pieces: Iterable[Entry]) -> Entry:
    # Filled in place: to join the pieces would take twice the memory.
    images = np.empty((len(paths), *form), np.uint8)
    facts: list[NDArray[Any]] = []
    bad: dict[int, str] = {}
    filled = 0
    for piece in pieces:
        images[filled : filled + len(piece.images)] = piece.images
        filled += len(piece.images)
        facts.append(piece.facts)
        bad |= piece.bad
    return Entry(images[:filled], np.concatenate(facts), bad)
