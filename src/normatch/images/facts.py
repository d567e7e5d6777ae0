"""What is known of an image beside its pixels at training size: how large it is, how it is stored, what it shows."""

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["FACTS", "facts_of"]

FACTS = np.dtype([("width", "<i4"), ("height", "<i4"), ("mode", "S8"), ("pixels", "<u8"), ("look", "<u8")])
"""``width`` and ``height`` of the upright image, Pillow's name of its ``mode``, ``pixels`` equal for equal pixels, and
``look``, the difference hash: a few bits apart for images that look alike."""


def facts_of(image: "Image.Image", mode: str) -> tuple[int, int, str, int, int]:
    """A row of :data:`FACTS` for an upright image in 8 bits, stored in ``mode``."""
    return image.width, image.height, mode, _pixels(image), _look(image)


def _pixels(image: "Image.Image") -> int:
    # In colour, so that a grey image equals its copy stored in colour.
    digest = hashlib.blake2b(f"{image.width}x{image.height}".encode(), digest_size=8)
    digest.update(image.convert("RGB").tobytes())
    return int.from_bytes(digest.digest(), "little")


def _look(image: "Image.Image") -> int:
    """The difference hash: of 8 × 9 grey pixels, which are brighter than their left neighbours."""
    from PIL import Image

    grey: Any = np.asarray(image.convert("L").resize((9, 8), Image.Resampling.BILINEAR))
    return int.from_bytes(np.packbits(grey[:, 1:] > grey[:, :-1]).tobytes(), "big")
