"""Many image files as one array: decoded to one size on all cores, or read from the cache."""

import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from normatch.data.images.cache import Cache, Entry, Rows, files_of
from normatch.data.images.cores import cores
from normatch.data.images.crew import Crew, crew
from normatch.data.images.decode import GREY, SIZES, BadImages, Channels, Form, Size
from normatch.data.images.facts import FACTS
from normatch.data.images.worker import Result, Work

__all__ = ["Decoded", "DecodingProgress", "OnBad", "common_side", "decode_all", "decode_batches", "silent"]

OnBad = Literal["stop", "skip"]
"""On unreadable images: raise an error, or skip and list them."""

DecodingProgress = Callable[[int, int], None]
"""Called with the number of files done and the number of all files."""

PIECE_FILES, PIECE_BYTES = 256, 1 << 22
"""Limits of a piece of work: number of files, and approximate size of their decoded pixels."""

NAMED = 3
"""Number of unreadable files that an error names; the others are only counted."""


@dataclass(frozen=True)
class Decoded:
    """``images`` (N, H, W, C) and their ``facts``; ``kept`` are the positions of their paths; ``bad`` has a line
    (path and reason) for each unreadable file."""

    images: NDArray[np.uint8]
    facts: NDArray[Any]
    kept: NDArray[np.int64]
    bad: tuple[str, ...]


def silent(done: int, total: int) -> None:
    """Shows nothing."""


def decode_all(
    paths: Sequence[Path],
    *,
    size: Size | None = None,
    channels: Channels | None = None,
    largest: int = SIZES[-1],
    on_bad: OnBad = "stop",
    cache: Cache | None = None,
    progress: DecodingProgress = silent,
) -> Decoded:
    """Decode all images to one size.

    Without ``size``, images of equal size keep it if it is at most ``largest``; otherwise all become squares of
    :func:`common_side`. Without ``channels``, there is one if all images are grey, else three. With ``cache``, files
    that have not changed since they were last decoded are not decoded again.
    """
    key = cache.key(paths) if cache else ""
    with ExitStack() as stack:
        team: list[Crew] = []

        def workers() -> Crew:
            # Started on first use only: often everything is in the cache.
            if not team:
                team.append(stack.enter_context(crew(len(paths))))
            return team[0]

        form: Form | None = (*_sides(size), channels) if size and channels else None
        if form is None:
            facts = cache.facts(key) if cache else None
            form = _form(facts if facts is not None else _headers(paths, workers()), size, channels, largest)
        entry = cache.open(key, form) if cache else None
        if entry is None:
            entry = _decode(paths, form, workers(), progress, cache, key)
    return _result(paths, entry, on_bad)


def decode_batches(
    paths: Sequence[Path], batch: int, *, size: Size, channels: Channels, on_bad: OnBad = "stop"
) -> Iterator[Decoded]:
    """The images in batches, each decoded while the caller works on the previous one: at most two are in memory.

    ``kept`` are positions in ``paths``, not in the batch.
    """

    form = *_sides(size), channels

    def read(start: int) -> Decoded:
        some = paths[start : start + batch]
        read_so_far = start + len(some)
        of = f"{'the first ' if read_so_far < len(paths) else ''}{read_so_far:,}"
        decoded = _result(some, _decode(some, form, do, silent, None, ""), on_bad, of)
        return replace(decoded, kept=decoded.kept + start)

    ahead: deque[Future[Decoded]] = deque()
    # The crew is inside: when the caller stops early, the reader must not wait for what it is reading.
    with ThreadPoolExecutor(1) as reader, crew(len(paths)) as do:
        for start in range(0, len(paths), batch):
            ahead.append(reader.submit(read, start))
            if len(ahead) == 2:
                yield ahead.popleft().result()
        yield from (last.result() for last in ahead)


def _result(paths: Sequence[Path], entry: Entry, on_bad: OnBad, of: str | None = None) -> Decoded:
    """The entry as a result. ``of`` is, for an error, how many images were read, if not just those of ``paths``."""
    if entry.bad and on_bad == "stop":
        raise _unreadable_error(paths, entry.bad, of or f"{len(paths):,}")
    kept = np.setdiff1d(np.arange(len(paths)), np.array(list(entry.bad), np.int64))
    return Decoded(entry.images, entry.facts, kept, tuple(f"{paths[i]}: {why}" for i, why in entry.bad.items()))


def common_side(sides: Sequence[float] | NDArray[Any], largest: int = SIZES[-1]) -> int:
    """The largest of :data:`SIZES` that exceeds neither the median of ``sides`` (the shorter ones) nor ``largest``.

    >>> common_side([30, 100, 400]), common_side([300, 400]), common_side([9])
    (96, 224, 32)
    """
    limit = min(float(np.median(sides)), largest)
    return max((size for size in SIZES if size <= limit), default=min(SIZES[0], largest))


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
    side = common_side(np.minimum(facts["height"], facts["width"]), largest) if len(facts) else SIZES[0]
    return side, side, channels


def _headers(paths: Sequence[Path], do: Crew) -> NDArray[Any]:
    parts = [result.facts for result in do(_pieces(paths, None))]
    return np.concatenate([np.zeros(0, FACTS), *parts])


def _decode(
    paths: Sequence[Path], form: Form, do: Crew, progress: DecodingProgress, cache: Cache | None, key: str
) -> Entry:
    """Decode all images, into the cache or into memory; those that are in the cache already are not decoded again."""
    with ExitStack() as stack:
        part = stack.enter_context(cache.writing(key, form)) if cache else None
        files = files_of(paths) if cache else []
        do = _sparing(do, *cache.known([state for _, state in files], form)) if cache else do
        images = np.empty((0 if part else len(paths), *form), np.uint8)
        facts: list[NDArray[Any]] = [np.zeros(0, FACTS)]
        bad: dict[int, str] = {}
        done = filled = 0
        lasting = True
        for piece, result in zip(_pieces(paths, form), do(_pieces(paths, form)), strict=True):
            if part:
                part.append(result.pixels)
            else:
                images[filled : filled + len(result.pixels)] = result.pixels
            facts.append(result.facts)
            bad |= {done + i: why for i, why, _ in result.bad}
            lasting = lasting and all(stays for *_, stays in result.bad)
            filled += len(result.pixels)
            done += len(piece.paths)
            progress(done, len(paths))
        entry = Entry(images[:filled], np.concatenate(facts), bad)
        if not part:
            return entry
        return part.finish(files, entry.facts, bad, source=_common_folder(paths), keep=lasting)


def _sparing(do: Crew, known: Entry, rows: Rows) -> Crew:
    """The crew, spared the files that have a row in ``known``; ``rows`` are those of all files in order."""

    def results(pieces: Iterable[Work]) -> Iterator[Result]:
        whole = list(pieces)
        parts = np.split(rows, np.cumsum([len(piece.paths) for piece in whole]))
        asked = (
            replace(piece, paths=tuple(path for path, row in zip(piece.paths, part, strict=True) if row < 0))
            for piece, part in zip(whole, parts, strict=False)
        )
        for result, part in zip(do(asked), parts, strict=False):
            yield _completed(result, known, part)

    return results


def _completed(result: Result, known: Entry, rows: Rows) -> Result:
    """The result with the images that were not asked for put in between."""
    asked = np.flatnonzero(rows < 0)
    bad = tuple((int(asked[i]), why, stays) for i, why, stays in result.bad)
    rows = np.delete(rows, [i for i, *_ in bad])
    new = rows < 0
    facts, pixels = np.empty(len(rows), FACTS), np.empty((len(rows), *result.pixels.shape[1:]), np.uint8)
    facts[new], pixels[new] = result.facts, result.pixels
    facts[~new], pixels[~new] = known.facts[rows[~new]], known.images[rows[~new]]
    return Result(facts, pixels, bad)


def _pieces(paths: Sequence[Path], form: Form | None) -> Iterator[Work]:
    by_bytes = PIECE_FILES if form is None else PIECE_BYTES // max(1, math.prod(form))
    # At least 16 pieces per core, so that few files are spread over all cores and large ones show progress too.
    each = max(1, min(PIECE_FILES, by_bytes, len(paths) // (16 * cores())))
    for start in range(0, len(paths), each):
        yield Work(tuple(map(str, paths[start : start + each])), form)


def _common_folder(paths: Sequence[Path]) -> str:
    """The deepest folder that contains all paths, shown in listings of the cache."""
    folders = {os.path.dirname(os.path.abspath(path)) for path in paths}
    return os.path.commonpath(folders) if folders else ""


def _unreadable_error(paths: Sequence[Path], bad: dict[int, str], of: str) -> BadImages:
    if len(bad) == 1:
        ((i, why),) = bad.items()
        return BadImages(f"cannot read image {paths[i]}: {why}; replace or remove it")
    named = ", ".join(f"{paths[i]} ({why})" for i, why in list(bad.items())[:NAMED])
    more = f" and {len(bad) - NAMED} more, which `normatch data inspect` lists" if len(bad) > NAMED else ""
    return BadImages(f"cannot read {len(bad)} of {of} images: {named}{more}; replace or remove them")
