"""A contact sheet: a few pictures of each class under its name, on one image."""

from collections.abc import Sequence
from itertools import filterfalse
from pathlib import Path
from typing import TYPE_CHECKING
from unicodedata import combining, normalize

import numpy as np
from numpy.typing import NDArray

from normatch.errors import UserError, reason
from normatch.files import must_be_free, replacing
from normatch.text import on_one_line

if TYPE_CHECKING:
    from PIL import ImageFont

__all__ = ["ACROSS", "must_be_drawable", "write_sheet"]

ACROSS = 8
"""Pictures in a row."""

FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG"}
"""The formats of a sheet, by suffix."""

TILE, GAP, TITLE = 96, 8, 26
INK, PAPER = (30, 30, 30), (255, 255, 255)

FONTS = ("NotoSansCJK-Regular.ttc", "Arial Unicode.ttf", "DejaVuSans.ttf", "NotoSans-Regular.ttf", "arial.ttf")
"""System fonts to try for titles that are not ASCII: Pillow's built-in font has ASCII only."""


def must_be_drawable(path: Path, *, force: bool = False) -> None:
    """Raise UserError unless a sheet can be written to ``path``; to be called before all images are read."""
    if path.suffix.lower() not in FORMATS:
        raise UserError(f"sheet is {str(path)!r}: give a file name that ends in .png or .jpg")
    must_be_free(path, force=force)


def write_sheet(path: Path, rows: Sequence[tuple[str, NDArray[np.uint8]]]) -> None:
    """Write the sheet to ``path``, in the format of its suffix. A row is a title and at most ACROSS pictures."""
    from PIL import Image, ImageDraw

    width, height = GAP + ACROSS * (TILE + GAP), GAP + len(rows) * (TITLE + TILE + GAP)
    sheet = Image.new("RGB", (width, height), PAPER)
    draw = ImageDraw.Draw(sheet)
    titles, font = _legible([on_one_line(title) for title, _ in rows])
    for i, (title, (_, pictures)) in enumerate(zip(titles, rows, strict=True)):
        top = GAP + i * (TITLE + TILE + GAP)
        draw.text((GAP, top), title, INK, font)
        for j, pixels in enumerate(pictures[:ACROSS]):
            picture = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).convert("RGB")
            scale = TILE / max(picture.size)
            # Small pictures are enlarged without smoothing, to show the pixels that training sees.
            how = Image.Resampling.NEAREST if scale > 1 else Image.Resampling.BILINEAR
            picture = picture.resize((round(picture.width * scale) or 1, round(picture.height * scale) or 1), how)
            sheet.paste(picture, (GAP + j * (TILE + GAP), top + TITLE))
    try:
        with replacing(path) as part:
            sheet.save(part, format=FORMATS[path.suffix.lower()])
    except OSError as error:
        raise UserError(f"cannot write {path}: {reason(error)}; choose another file") from error


def _legible(titles: list[str]) -> tuple[list[str], "ImageFont.FreeTypeFont | ImageFont.ImageFont"]:
    """The titles and a font for them; without a suitable font, accents are removed from the titles."""
    from PIL import ImageFont

    for name in () if "".join(titles).isascii() else FONTS:
        try:
            return titles, ImageFont.truetype(name, 16)
        except OSError:
            continue
    bare = (filterfalse(combining, normalize("NFKD", title)) for title in titles)
    return ["".join(letters) for letters in bare], ImageFont.load_default(size=16)
