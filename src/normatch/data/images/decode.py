"""One image file as a uint8 array: turned upright, 8 bits per channel, transparency replaced by white."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from normatch.errors import UserError, reason

if TYPE_CHECKING:
    from PIL import Image

__all__ = [
    "DEEP",
    "GREY",
    "SIZES",
    "SUFFIXES",
    "VERSION",
    "BadImages",
    "Channels",
    "Form",
    "Header",
    "Size",
    "Unreadable",
    "fit",
    "fit_upright",
    "header",
    "open_upright",
    "pixels",
]

VERSION = 3
"""Version of the decoding: part of the cache's keys, so increment it when decoded pixels or facts change."""

SUFFIXES = frozenset(
    {".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".pbm", ".pnm"}
)

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
"""The formats that are opened, whatever a file is called: Pillow reads others too, some by starting other programs."""

Channels = Literal[1, 3]

Size = int | tuple[int, int]
"""The side of a square, or (H, W)."""

Form = tuple[int, int, int]
"""(H, W, C) of the decoded images."""

SIZES = (32, 48, 64, 96, 128, 160, 192, 224)
"""The sides to choose from if the images differ in size and the user gives none; larger images never keep theirs."""

DEEP = frozenset({"I", "I;16", "I;16B", "I;16L", "I;16N"})
GREY = DEEP | {"1", "L", "LA", "La"}

Header = tuple[int, int, str]
"""Width and height of the upright image, and the mode in which it is stored."""

ENOUGH = 2 * SIZES[-1]
"""Pixels of the shorter side that a large JPEG keeps at least when it is decoded at reduced size."""

STRIP = 1 << 24
"""Pixels of a scaled picture above which it is refused: a strip one pixel high has gigabytes of them."""

ORIENTATION, QUARTERS = 0x0112, (5, 6, 7, 8)
"""The Exif tag for the orientation, and its values for quarter turns, which swap width and height."""


class BadImages(UserError):
    """Image files that cannot be read."""


class Unreadable(Exception):
    """An image file that cannot be decoded: ``why``, and ``lasting`` if that is a property of the file itself."""

    def __init__(self, path: Path, error: Exception) -> None:
        super().__init__(path)
        self.why = _why(path, error)
        # Lack of memory and other system errors, such as a lost network drive, may be gone the next time.
        self.lasting = not isinstance(error, MemoryError) and getattr(error, "errno", None) in (None, errno.ENOENT)


def fit_upright(image: "Image.Image", size: tuple[int, int], channels: Channels) -> NDArray[np.uint8]:
    """An image of Pillow's as (H, W, C), as if its file had been decoded, but never at reduced size: Pillow may have
    decoded it already, and it is the caller's."""
    from PIL import ImageOps

    try:
        upright = _plain(ImageOps.exif_transpose(image), "L" if channels == 1 else "RGB")
        return pixels(upright, (*size, channels))
    except Exception as error:  # as of a file
        raise BadImages(
            f"cannot use an image of mode {image.mode} and size {image.size}: {reason(error)}; convert or remove it"
        ) from error


def pixels(image: "Image.Image", form: Form) -> NDArray[np.uint8]:
    """The image as (H, W, C) of that form, scaled and cropped if necessary (:func:`fit`)."""
    return np.array(fit(image, *form[:2]), np.uint8).reshape(form)


def open_upright(path: Path, form: Form) -> tuple["Image.Image", Header]:
    """The image, upright, in 8 bits per channel, to be scaled to ``form``; and its header.

    A JPEG several times larger is decoded to a half, a quarter or an eighth of its size, which takes a fraction of the
    time; the shorter side stays at least :data:`ENOUGH` and twice the form's.
    """
    from PIL import ImageOps

    with _open(path) as image:
        (width, height), stored = image.size, image.mode
        least = max(ENOUGH, 2 * form[0], 2 * form[1])
        image.draft(None, (least, least))  # without effect on other formats
        upright = _plain(ImageOps.exif_transpose(image), "L" if form[2] == 1 else "RGB")
        return upright, ((height, width, stored) if _is_turned(image) else (width, height, stored))


def fit(image: "Image.Image", rows: int, columns: int) -> "Image.Image":
    """The image scaled to just cover ``rows`` × ``columns`` pixels, then centre-cropped to that size.

    Bilinear and antialiased, by Pillow.
    """
    from PIL import Image

    if image.size == (columns, rows):
        return image
    scale = max(columns / image.width, rows / image.height)
    width, height = max(columns, round(image.width * scale)), max(rows, round(image.height * scale))
    if width * height > STRIP:
        raise ValueError(f"its {image.width:,} × {image.height:,} pixels are too long a strip")
    left, top = (width - columns) // 2, (height - rows) // 2
    scaled = image.resize((width, height), Image.Resampling.BILINEAR)
    return scaled.crop((left, top, left + columns, top + rows))


def header(path: Path) -> Header:
    """The header of an image, without decoding the pixels; of one too large to keep its size perhaps not upright."""
    with _open(path) as image:
        width, height = image.size
        # Reading Exif may decode the whole file (PNG), so only where a turn matters: in larger images only the
        # shorter side does.
        turned = width != height and max(width, height) <= SIZES[-1] and _is_turned(image)
        return (height, width, image.mode) if turned else (width, height, image.mode)


@contextmanager
def _open(path: Path) -> "Iterator[Image.Image]":
    """The image; Unreadable if it cannot be opened, or decoded in the block."""
    from PIL import Image

    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            raise ValueError("not a file but a device or a pipe")  # which might never end
        with Image.open(path, formats=FORMATS) as image:
            if Image.MAX_IMAGE_PIXELS and image.width * image.height > Image.MAX_IMAGE_PIXELS:
                raise ValueError(f"its {image.width:,} × {image.height:,} pixels are too many to decode safely")
            yield image
    except Exception as error:  # decoders raise nearly anything on a damaged file
        raise Unreadable(path, error) from error


def _is_turned(image: "Image.Image") -> bool:
    """Whether a quarter turn makes the image upright."""
    return image.getexif().get(ORIENTATION, 1) in QUARTERS


def _why(path: Path, error: Exception) -> str:
    from PIL import UnidentifiedImageError

    if isinstance(error, FileNotFoundError):
        # A backslash in a missing name most likely means a list made on Windows.
        return "no such file; write / where it has \\" if "\\" in path.name else "no such file"
    if isinstance(error, IsADirectoryError):
        return "a folder, not an image"
    if isinstance(error, MemoryError):
        return "there is too little memory for it"
    if isinstance(error, UnidentifiedImageError):
        return "not an image of a known kind" if path.stat().st_size else "the file is empty"
    return reason(error)


def _plain(image: "Image.Image", mode: Literal["L", "RGB"]) -> "Image.Image":
    """The image in ``mode``: 8 bits per channel, without palette and transparency."""
    from PIL import Image

    if image.mode == "F":
        raise ValueError("its pixels are floating-point numbers without a known range")
    if image.mode in DEEP:
        # Scale 16 bits to 8, since Pillow would clip to 255. Mode I (32-bit integers) comes from 16-bit files.
        deep = np.clip(np.asarray(image).astype(np.int64), 0, 65_535)
        image = Image.fromarray(((deep * 255 + 32_767) // 65_535).astype(np.uint8))
    if image.has_transparency_data:
        colour = image.convert("RGBA")
        white = Image.new("RGBA", colour.size, (255, 255, 255, 255))
        image = Image.alpha_composite(white, colour).convert("RGB")
    return image.convert(mode)
