"""Image files as arrays of bytes of one size: upright, 8 bits deep, on white where transparent, read by all cores."""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from normatch.data.reason import reason
from normatch.errors import UserError

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["SIZES", "SUFFIXES", "Channels", "Decoded", "OnBad", "decode", "decode_all", "decode_batches", "resize_all"]

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff"})
SIZES = (32, 48, 64, 96, 128, 160, 192, 224)
"""The sides to choose from where the images differ in size and the user names none."""

Channels = Literal[1, 3]

Size = int | tuple[int, int]
"""The side of a square, or (H, W)."""

OnBad = Literal["stop", "skip"]
"""An unreadable image ends the reading with an error, or is left out and listed."""

GREY = frozenset({"1", "L", "LA", "La", "I", "I;16", "I;16B", "I;16L", "I;16N"})
DEEP = frozenset({"I", "I;16", "I;16B", "I;16L", "I;16N"})

ORIENTATION = 0x0112
"""Exif's tag for which way is up; 5 to 8 are the quarter turns."""

CHUNK = 1_024

T = TypeVar("T")


@dataclass(frozen=True)
class Decoded:
    """``images`` (N, H, W, C); ``kept`` says which of the paths they are, ``bad`` why each of the others is not."""

    images: NDArray[np.uint8]
    kept: NDArray[np.int64]
    bad: tuple[str, ...]


def decode(path: Path, size: Size | None, channels: Channels) -> NDArray[np.uint8]:
    """The image at ``path`` as (H, W, C): as large as it is, or with the part of ``size`` from its middle.

    For that part the image is first scaled until it just covers it (bilinear, antialiased, as Pillow does it).
    """
    from PIL import Image, ImageOps

    with _open(path) as image:
        try:
            upright = ImageOps.exif_transpose(image)
            plain = _plain(upright, "L" if channels == 1 else "RGB")
        except Exception as error:  # decoders raise nearly anything on a damaged file
            raise _unreadable(path, error) from error
    rows, columns = (size, size) if isinstance(size, int) else size or (plain.height, plain.width)
    if plain.size != (columns, rows):
        scale = max(columns / plain.width, rows / plain.height)
        width, height = max(columns, round(plain.width * scale)), max(rows, round(plain.height * scale))
        left, top = (width - columns) // 2, (height - rows) // 2
        plain = plain.resize((width, height), Image.Resampling.BILINEAR).crop((left, top, left + columns, top + rows))
    return np.array(plain, np.uint8).reshape(plain.height, plain.width, channels)


def decode_all(
    paths: Sequence[Path],
    *,
    size: Size | None = None,
    channels: Channels | None = None,
    on_bad: OnBad = "stop",
) -> Decoded:
    """All images at one size, by as many threads as there are cores.

    Without ``size``, images that all have one size keep it; others get the largest of :data:`SIZES` that is not above
    the median of their shorter sides, 32 at least. Without ``channels``, there is one if all are grey, three otherwise.
    """
    bad: dict[int, str] = {}
    kept = list(range(len(paths)))
    if size is None or channels is None:
        headers = dict(_each(_header, paths, kept, on_bad, bad))
        kept = sorted(headers)
        if channels is None:
            channels = 1 if headers and all(header.grey for header in headers.values()) else 3
        if size is None:
            size = _common_size([header.size for header in headers.values()])
    side, depth = size, channels
    images: NDArray[np.uint8] | None = None
    filled: list[int] = []
    for position, image in _each(lambda path: decode(path, side, depth), paths, kept, on_bad, bad):
        if images is None:
            # Now that the size is known even where the images keep theirs.
            images = np.empty((len(kept), *image.shape), np.uint8)
        images[len(filled)] = image
        filled.append(position)
    if images is None:
        rows, columns = (side, side) if isinstance(side, int) else side or (SIZES[0], SIZES[0])
        images = np.empty((0, rows, columns, depth), np.uint8)
    return Decoded(images[: len(filled)], np.array(filled, np.int64), tuple(bad[i] for i in sorted(bad)))


def decode_batches(
    paths: Sequence[Path], batch: int, *, size: Size, channels: Channels, on_bad: OnBad = "stop"
) -> Iterator[Decoded]:
    """The images ``batch`` by ``batch``, each batch read while the caller works on the one before: two in memory.

    ``kept`` counts from the start of ``paths``.
    """

    def read(start: int) -> Decoded:
        decoded = decode_all(paths[start : start + batch], size=size, channels=channels, on_bad=on_bad)
        return replace(decoded, kept=decoded.kept + start)

    ahead: deque[Future[Decoded]] = deque()
    with ThreadPoolExecutor(1) as reader:
        for start in range(0, len(paths), batch):
            ahead.append(reader.submit(read, start))
            if len(ahead) == 2:
                yield ahead.popleft().result()
        yield from (last.result() for last in ahead)


def resize_all(images: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """Images (N, H, W, C) at ``size`` × ``size`` (bilinear, antialiased, as Pillow does it)."""
    from PIL import Image

    if images.shape[1:3] == (size, size):
        return images
    out = np.empty((len(images), size, size, images.shape[3]), np.uint8)
    flat = images[..., 0] if images.shape[3] == 1 else images

    def resize(i: int) -> None:
        small = Image.fromarray(flat[i]).resize((size, size), Image.Resampling.BILINEAR)
        out[i] = np.asarray(small).reshape(out.shape[1:])

    with ThreadPoolExecutor(_cores()) as pool:
        for _ in pool.map(resize, range(len(images))):
            pass
    return out


@dataclass(frozen=True)
class _Header:
    size: tuple[int, int]
    grey: bool


def _header(path: Path) -> _Header:
    with _open(path) as image:
        try:
            width, height = image.size
            # Reading Exif may decode the whole file; a square is the same either way round.
            lying = width != height and image.getexif().get(ORIENTATION, 1) in (5, 6, 7, 8)
            return _Header((height, width) if lying else (width, height), image.mode in GREY)
        except Exception as error:  # as in decode
            raise _unreadable(path, error) from error


def _common_size(sizes: Sequence[tuple[int, int]]) -> int | None:
    """None where all agree."""
    if len(set(sizes)) <= 1:
        return None
    median = float(np.median([min(size) for size in sizes]))
    return max((size for size in SIZES if size <= median), default=SIZES[0])


def _open(path: Path) -> "Image.Image":
    from PIL import Image

    try:
        return Image.open(path)
    except Exception as error:  # as in decode
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> UserError:
    why = "no such file" if isinstance(error, FileNotFoundError) else reason(error)
    return UserError(f"cannot read image {path}: {why}; replace or remove it, or set on_bad_image to skip")


def _plain(image: "Image.Image", mode: Literal["L", "RGB"]) -> "Image.Image":
    """The image in 8 bits a channel, without palette and transparency."""
    from PIL import Image

    if image.mode == "F":
        raise ValueError("its pixels are floating-point numbers without a known range")
    if image.mode in DEEP:
        # Pillow itself would clip to 255. 32-bit integers come from 16-bit files.
        deep = np.clip(np.asarray(image).astype(np.int64), 0, 65_535)
        image = Image.fromarray(((deep * 255 + 32_767) // 65_535).astype(np.uint8))
    if image.has_transparency_data:
        colour = image.convert("RGBA")
        white = Image.new("RGBA", colour.size, (255, 255, 255, 255))
        image = Image.alpha_composite(white, colour).convert("RGB")
    return image.convert(mode)


def _each(
    work: Callable[[Path], T], paths: Sequence[Path], positions: Sequence[int], on_bad: OnBad, bad: dict[int, str]
) -> Iterator[tuple[int, T]]:
    """Position and result, in order; an error stops all, or is noted in ``bad``."""

    def attempt(position: int) -> T | UserError:
        try:
            return work(paths[position])
        except UserError as error:
            return error

    with ThreadPoolExecutor(_cores()) as pool:
        # In pieces, so that results do not pile up in memory and an error stops soon.
        for start in range(0, len(positions), CHUNK):
            piece = positions[start : start + CHUNK]
            for position, result in zip(piece, pool.map(attempt, piece), strict=True):
                if not isinstance(result, UserError):
                    yield position, result
                elif on_bad == "stop":
                    raise result
                else:
                    bad[position] = str(result)


def _cores() -> int:
    # Not the machine's cores but those that this process may use, where the system can tell.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
