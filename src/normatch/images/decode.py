"""One image file as an array of bytes: upright, 8 bits deep, on white where transparent."""

import errno
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from normatch.errors import UserError, reason
from normatch.images.cores import cores

if TYPE_CHECKING:
    from PIL import Image

__all__ = [
    "GREY",
    "LEFT_OUT",
    "SUFFIXES",
    "VERSION",
    "Channels",
    "Size",
    "Unreadable",
    "decode",
    "fit",
    "header",
    "open_upright",
    "resize_all",
]

VERSION = 1
"""Of what an image decodes to: a cache of another version is not read."""

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff"})

Channels = Literal[1, 3]

Size = int | tuple[int, int]
"""The side of a square, or (H, W)."""

GREY = frozenset({"1", "L", "LA", "La", "I", "I;16", "I;16B", "I;16L", "I;16N"})
DEEP = frozenset({"I", "I;16", "I;16B", "I;16L", "I;16N"})

LEFT_OUT = "or leave such out with --on-bad-image skip"

ORIENTATION = 0x0112
"""Exif's tag for which way is up; 5 to 8 are the quarter turns."""


class Unreadable(UserError):
    """An image file that cannot be decoded: ``why``, and whether it will stay so while the file stays as it is."""

    def __init__(self, path: Path, error: Exception) -> None:
        self.why = _why(path, error)
        # An error of the system, such as a lost network drive, is not the file's.
        self.lasting = getattr(error, "errno", None) in (None, errno.ENOENT)
        super().__init__(f"cannot read image {path}: {self.why}; replace or remove it, {LEFT_OUT}")


def decode(path: Path, size: Size | None, channels: Channels) -> NDArray[np.uint8]:
    """The image at ``path`` as (H, W, C): as large as it is, or with the part of ``size`` from its middle."""
    image, _ = open_upright(path, "L" if channels == 1 else "RGB")
    if size is not None:
        image = fit(image, *((size, size) if isinstance(size, int) else size))
    return np.array(image, np.uint8).reshape(image.height, image.width, channels)


def open_upright(path: Path, mode: Literal["L", "RGB"]) -> tuple["Image.Image", str]:
    """The whole image in 8 bits a channel, and the mode in which it is stored."""
    from PIL import ImageOps

    with _open(path) as image:
        try:
            return _plain(ImageOps.exif_transpose(image), mode), image.mode
        except Exception as error:  # decoders raise nearly anything on a damaged file
            raise Unreadable(path, error) from error


def fit(image: "Image.Image", rows: int, columns: int) -> "Image.Image":
    """The part of ``rows`` × ``columns`` pixels from the middle, after the image is scaled until it just covers it.

    Bilinear and antialiased, as Pillow does it.
    """
    from PIL import Image

    if image.size == (columns, rows):
        return image
    scale = max(columns / image.width, rows / image.height)
    width, height = max(columns, round(image.width * scale)), max(rows, round(image.height * scale))
    left, top = (width - columns) // 2, (height - rows) // 2
    return image.resize((width, height), Image.Resampling.BILINEAR).crop((left, top, left + columns, top + rows))


def header(path: Path) -> tuple[int, int, str]:
    """Width and height of the upright image and the mode in which it is stored, without its pixels."""
    with _open(path) as image:
        try:
            width, height = image.size
            # Reading Exif may decode the whole file; a square is the same either way round.
            lying = width != height and image.getexif().get(ORIENTATION, 1) in (5, 6, 7, 8)
            return (height, width, image.mode) if lying else (width, height, image.mode)
        except Exception as error:  # as in open_upright
            raise Unreadable(path, error) from error


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

    with ThreadPoolExecutor(cores()) as pool:
        for _ in pool.map(resize, range(len(images))):
            pass
    return out


def _open(path: Path) -> "Image.Image":
    from PIL import Image

    try:
        return Image.open(path)
    except Exception as error:  # as in open_upright
        raise Unreadable(path, error) from error


def _why(path: Path, error: Exception) -> str:
    from PIL import UnidentifiedImageError

    if isinstance(error, FileNotFoundError):
        # A list made on Windows; where such a name is a file's, it was found.
        return "no such file; write / where it has \\" if "\\" in path.name else "no such file"
    if isinstance(error, UnidentifiedImageError):
        return "it is no image of a known kind" if path.stat().st_size else "the file is empty"
    return reason(error)


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
