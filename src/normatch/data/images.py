"""Image files as uint8 arrays of one size: upright, 8 bits per channel, white where transparent; decoded in threads."""

import errno
import io
import os
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from normatch.data.cache import Cache, Decoded, Form, Found
from normatch.errors import UserError, reason

if TYPE_CHECKING:
    from PIL import Image

__all__ = [
    "DEEP",
    "DEFAULT",
    "SIZES",
    "SUFFIXES",
    "BadImages",
    "OnBad",
    "Reading",
    "decode_all",
    "decode_batches",
    "fit_upright",
    "in_threads",
    "open_upright",
    "resize_all",
    "sizes_of",
]

SUFFIXES = frozenset(
    {".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".pbm", ".pnm"}
)

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
"""The formats that are opened, whatever a file is called: Pillow reads others too, some by starting other programs."""

SIZES = (32, 48, 64, 96, 128, 160, 192, 224)
"""The sides to choose from if the images differ in size and the user gives none; larger images never keep theirs."""

DEEP = frozenset({b"I", b"I;16", b"I;16B", b"I;16L", b"I;16N"})
GREY = DEEP | {b"1", b"L", b"LA", b"La"}
"""Pillow's modes of more than 8 bits, and of grey images."""

FACTS = np.dtype([("width", "<i4"), ("height", "<i4"), ("mode", "S8")])
"""Width and height of an upright image, and the mode in which it is stored."""

Fact = tuple[int, int, str]

ENOUGH = 2 * SIZES[-1]
"""Pixels of the shorter side that a large JPEG keeps at least when it is decoded at reduced size."""

STRIP = 1 << 24
"""Pixels of a scaled picture above which it is refused: a strip one pixel high has gigabytes of them."""

ORIENTATION, QUARTERS = 0x0112, (5, 6, 7, 8)
"""The Exif tag for the orientation, and its values for quarter turns, which swap width and height."""

Size = int | tuple[int, int]
"""The side of a square, or (H, W)."""

OnBad = Literal["stop", "skip"]
"""On unreadable images: raise an error, or skip and list them."""

A = TypeVar("A")
B = TypeVar("B")


class BadImages(UserError):
    """Image files that cannot be read."""


@dataclass(frozen=True)
class Reading:
    """How image files are read, which does not affect the result."""

    cache: bool = True
    progress: Callable[[int, int], None] = lambda done, total: None
    """Called with the number of files done and the number of all files."""


DEFAULT = Reading()


def decode_all(
    paths: Sequence[Path],
    *,
    size: Size | None = None,
    channels: int | None = None,
    largest: int = SIZES[-1],
    on_bad: OnBad = "stop",
    reading: Reading = DEFAULT,
) -> Decoded:
    """Decode all images to one size.

    Without ``size``, images of equal size keep it if it is at most ``largest``; otherwise all become squares of the
    largest of :data:`SIZES` that exceeds neither the median of the shorter sides nor ``largest``. Without ``channels``,
    there is one if all images are grey, else three. From the cache, files that have not changed since they were last
    decoded are not decoded again.
    """
    cache = Cache() if reading.cache else None
    key = cache.key(paths) if cache else ""
    if size and channels:
        form: Form = (*_sides(size), channels)
    else:
        facts = cache.facts(key) if cache else None
        form = _form(_headers(paths) if facts is None else facts, size, channels, largest)

    def decode(file: IO[bytes]) -> Found:
        with closing(_attempts(lambda path: _decode(path, form), paths)) as attempts:
            return _gather(attempts, file, lambda done: reading.progress(done, len(paths)))

    decoded = cache.open(key, form) if cache else None
    if decoded is None:
        decoded = cache.write(key, form, decode) if cache else _in_memory(decode, form)
    return _named(paths, decoded, on_bad)


def sizes_of(paths: Sequence[Path], reading: Reading = DEFAULT) -> NDArray[Any]:
    """Facts about the images without decoding them: from the cache, or from their headers."""
    cache = Cache() if reading.cache else None
    facts = cache.facts(cache.key(paths)) if cache else None
    return _headers(paths) if facts is None else facts


def decode_batches(
    paths: Sequence[Path], batch: int, *, size: Size, channels: int, on_bad: OnBad = "stop"
) -> Iterator[Decoded]:
    """The images in batches, each decoded while the caller works on the previous one: at most two are in memory."""
    form = (*_sides(size), channels)
    with closing(_attempts(lambda path: _decode(path, form), paths, ahead=batch)) as attempts:
        for start in range(0, len(paths), batch):
            decoded = _in_memory(lambda file: _gather(islice(attempts, batch), file), form)
            yield _named(paths[start : start + batch], decoded, on_bad)


def resize_all(images: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """Images (N, H, W, C) scaled and centre-cropped to ``size`` × ``size``, as files are."""
    from PIL import Image

    if images.shape[1:3] == (size, size):
        return images
    out = np.empty((len(images), size, size, images.shape[3]), np.uint8)
    flat = images[..., 0] if images.shape[3] == 1 else images

    def resize(i: int) -> None:
        out[i] = _pixels(Image.fromarray(flat[i]), (size, size, out.shape[3]))

    deque(in_threads(resize, range(len(images))), maxlen=0)
    return out


def fit_upright(image: "Image.Image", size: tuple[int, int], channels: int) -> NDArray[np.uint8]:
    """An image of Pillow's as (H, W, C), as if its file had been decoded, but never at reduced size: Pillow may have
    decoded it already, and it is the caller's."""
    from PIL import ImageOps

    try:
        return _pixels(_plain(ImageOps.exif_transpose(image), channels), (*size, channels))
    except Exception as error:  # as of a file
        raise BadImages(
            f"cannot use an image of mode {image.mode} and size {image.size}: {reason(error)}; convert or remove it"
        ) from error


# One file


def open_upright(path: Path, form: Form) -> tuple["Image.Image", Fact]:
    """The image, upright, in 8 bits per channel, to be scaled to ``form``; and its facts.

    A JPEG several times larger is decoded to a half, a quarter or an eighth of its size, which takes a fraction of the
    time; the shorter side stays at least :data:`ENOUGH` and twice the form's.
    """
    from PIL import ImageOps

    with _open(path) as image:
        (width, height), stored = image.size, image.mode
        least = max(ENOUGH, 2 * form[0], 2 * form[1])
        image.draft(None, (least, least))  # without effect on other formats
        upright = _plain(ImageOps.exif_transpose(image), form[2])
        return upright, ((height, width, stored) if _is_turned(image) else (width, height, stored))


def _decode(path: Path, form: Form) -> tuple[Fact, NDArray[np.uint8]]:
    image, fact = open_upright(path, form)
    return fact, _pixels(image, form)


def _header(path: Path) -> Fact:
    """The header of an image, without decoding the pixels; of one too large to keep its size perhaps not upright."""
    with _open(path) as image:
        width, height = image.size
        # Reading Exif may decode the whole file (PNG), so only where a turn matters: in larger images only the
        # shorter side does.
        turned = width != height and max(width, height) <= SIZES[-1] and _is_turned(image)
        return (height, width, image.mode) if turned else (width, height, image.mode)


@contextmanager
def _open(path: Path) -> "Iterator[Image.Image]":
    from PIL import Image

    if path.exists() and not path.is_file() and not path.is_dir():
        raise ValueError("not a file but a device or a pipe")  # which might never end
    with Image.open(path, formats=FORMATS) as image:
        if Image.MAX_IMAGE_PIXELS and image.width * image.height > Image.MAX_IMAGE_PIXELS:
            raise ValueError(f"its {image.width:,} × {image.height:,} pixels are too many to decode safely")
        yield image


def _is_turned(image: "Image.Image") -> bool:
    """Whether a quarter turn makes the image upright."""
    return image.getexif().get(ORIENTATION, 1) in QUARTERS


def _plain(image: "Image.Image", channels: int) -> "Image.Image":
    """The image in 8 bits per channel, without palette and transparency."""
    from PIL import Image

    if image.mode == "F":
        raise ValueError("its pixels are floating-point numbers without a known range")
    if image.mode.encode() in DEEP:
        # Scale 16 bits to 8, since Pillow would clip to 255. Mode I (32-bit integers) comes from 16-bit files.
        deep = np.clip(np.asarray(image).astype(np.int64), 0, 65_535)
        image = Image.fromarray(((deep * 255 + 32_767) // 65_535).astype(np.uint8))
    if image.has_transparency_data:
        colour = image.convert("RGBA")
        white = Image.new("RGBA", colour.size, (255, 255, 255, 255))
        image = Image.alpha_composite(white, colour).convert("RGB")
    return image.convert("L" if channels == 1 else "RGB")


def _pixels(image: "Image.Image", form: Form) -> NDArray[np.uint8]:
    """The image as (H, W, C), scaled to just cover that size, bilinear and antialiased, then centre-cropped to it."""
    from PIL import Image

    rows, columns = form[:2]
    if image.size != (columns, rows):
        scale = max(columns / image.width, rows / image.height)
        width, height = max(columns, round(image.width * scale)), max(rows, round(image.height * scale))
        if width * height > STRIP:
            raise ValueError(f"its {image.width:,} × {image.height:,} pixels are too long a strip")
        left, top = (width - columns) // 2, (height - rows) // 2
        image = image.resize((width, height), Image.Resampling.BILINEAR)
        image = image.crop((left, top, left + columns, top + rows))
    return np.array(image, np.uint8).reshape(form)


# Many files


class _Unreadable(NamedTuple):
    why: str
    lasting: bool
    """Whether that is a property of the file itself."""


def _unreadable(path: Path, error: Exception) -> _Unreadable:
    from PIL import UnidentifiedImageError

    why = reason(error)
    if isinstance(error, FileNotFoundError):
        # A backslash in a missing name most likely means a list made on Windows.
        why = "no such file; write / where it has \\" if "\\" in path.name else "no such file"
    elif isinstance(error, IsADirectoryError):
        why = "a folder, not an image"
    elif isinstance(error, MemoryError):
        why = "there is too little memory for it"
    elif isinstance(error, UnidentifiedImageError):
        why = "not an image of a known kind" if path.stat().st_size else "the file is empty"
    # Lack of memory and other system errors, such as a lost network drive, may be gone the next time.
    lasting = not isinstance(error, MemoryError) and getattr(error, "errno", None) in (None, errno.ENOENT)
    return _Unreadable(why, lasting)


def _attempts(
    read: Callable[[Path], B], paths: Sequence[Path], ahead: int = 64
) -> Generator[B | _Unreadable, None, None]:
    """What ``read`` makes of each file, or why it cannot be read."""

    def attempt(path: Path) -> B | _Unreadable:
        try:
            return read(path)
        except Exception as error:  # decoders raise nearly anything on a damaged file
            return _unreadable(path, error)

    # Pillow warns of odd metadata. Filters are the whole process's: this one is for the threads, and stays.
    warnings.filterwarnings("ignore", module=r"PIL\.")
    return in_threads(attempt, paths, ahead)


def in_threads(do: Callable[[A], B], things: Iterable[A], ahead: int = 64) -> Generator[B, None, None]:
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


def _gather(
    attempts: Iterable[tuple[Fact, NDArray[np.uint8]] | _Unreadable],
    file: IO[bytes],
    progress: Callable[[int], None] = lambda done: None,
) -> Found:
    """Write the pixels of the readable images to ``file``."""
    facts: list[Fact] = []
    bad: dict[int, str] = {}
    lasting = True
    for i, found in enumerate(attempts):
        if isinstance(found, _Unreadable):
            bad[i] = found.why
            lasting &= found.lasting
        else:
            facts.append(found[0])
            file.write(found[1].data)
        progress(i + 1)
    return np.array(facts, FACTS), bad, lasting


def _in_memory(decode: Callable[[IO[bytes]], Found], form: Form) -> Decoded:
    file = io.BytesIO()
    facts, bad, _ = decode(file)
    return Decoded(np.frombuffer(file.getbuffer(), np.uint8).reshape(len(facts), *form), facts, bad)


def _named(paths: Sequence[Path], decoded: Decoded, on_bad: OnBad) -> Decoded:
    """The same with the path of each unreadable file; BadImages if there are any and ``on_bad`` is to stop."""
    bad = {i: f"{paths[i]}: {why}" for i, why in decoded.bad.items()}
    if bad and on_bad == "stop":
        more = f", and {len(bad) - 1:,} more, which `normatch data inspect` lists" if len(bad) > 1 else ""
        first = next(iter(bad.values()))
        raise BadImages(f"cannot read image {first}{more}; replace or remove {'them' if more else 'it'}")
    return Decoded(decoded.images, decoded.facts, bad)


def _headers(paths: Sequence[Path]) -> NDArray[Any]:
    found = list(_attempts(_header, paths))
    return np.array([header for header in found if not isinstance(header, _Unreadable)], FACTS)


def _sides(size: Size) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else size


def _form(headers: NDArray[Any], size: Size | None, channels: int | None, largest: int) -> Form:
    if channels is None:
        channels = 1 if len(headers) and set(headers["mode"].tolist()) <= GREY else 3
    if size is not None:
        return *_sides(size), channels
    seen = set(zip(headers["height"].tolist(), headers["width"].tolist(), strict=True))
    if len(seen) == 1 and max(next(iter(seen))) <= largest:
        return *seen.pop(), channels
    limit = min(float(np.median(np.minimum(headers["height"], headers["width"]))), largest) if len(headers) else 0
    side = max((size for size in SIZES if size <= limit), default=min(SIZES[0], largest))
    return side, side, channels
