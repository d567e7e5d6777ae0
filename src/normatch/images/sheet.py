"""A contact sheet: a few pictures of each class under its name, on one image."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from normatch.errors import UserError, reason
from normatch.files import replacing

if TYPE_CHECKING:
    from PIL import ImageFont

__all__ = ["ACROSS", "write_sheet"]

ACROSS = 8
"""Pictures in a row."""

TILE, GAP, TITLE = 96, 8, 26
INK, PAPER = (30, 30, 30), (255, 255, 255)


def write_sheet(path: Path, rows: Sequence[tuple[str, NDArray[np.uint8]]]) -> None:
    """Write ``path`` (its suffix names the format): a title and pictures (N, H, W, C), ACROSS at most, for each row."""
    from PIL import Image, ImageDraw, ImageFont

    width, height = GAP + ACROSS * (TILE + GAP), GAP + len(rows) * (TITLE + TILE + GAP)
    sheet = Image.new("RGB", (width, height), PAPER)
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(size=16)
    for i, (title, pictures) in enumerate(rows):
        top = GAP + i * (TITLE + TILE + GAP)
        draw.text((GAP, top), _fitting(title, font, width - 2 * GAP), INK, font)
        for j, pixels in enumerate(pictures[:ACROSS]):
            picture = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).convert("RGB")
            scale = TILE / max(picture.size)
            # Small pictures show their pixels, as training sees them.
            kind = Image.Resampling.NEAREST if scale > 1 else Image.Resampling.BILINEAR
            picture = picture.resize((round(picture.width * scale) or 1, round(picture.height * scale) or 1), kind)
            sheet.paste(picture, (GAP + j * (TILE + GAP), top + TITLE))
    try:
        with replacing(path) as part:
            sheet.save(part, format=Image.registered_extensions()[path.suffix.lower()])
    except KeyError:
        raise UserError(f"sheet is {str(path)!r}: give a file name that ends in .png or .jpg") from None
    except OSError as error:
        raise UserError(f"cannot write {path}: {reason(error)}; choose another file") from error


def _fitting(title: str, font: "ImageFont.FreeTypeFont | ImageFont.ImageFont", width: int) -> str:
    """The title, cut off where it would leave the sheet."""
    if font.getlength(title) <= width:
        return title
    while title and font.getlength(f"{title}…") > width:
        title = title[:-1]
    return f"{title}…"
