"""Facts about an image file, from its full-size pixels: size, mode, and hashes to find duplicates with."""

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["FACTS", "Fact", "facts_of"]

FACTS = np.dtype(
    [
        ("width", "<i4"),
        ("height", "<i4"),
        ("mode", "S8"),
        ("pixels", "<u8"),
        ("look", "<u8"),
        ("thumbnail", "u1", (8, 9)),
    ]
)
"""``width`` and ``height`` of the upright image; ``mode``, as Pillow names it; ``pixels``, a hash of the exact pixels;
``look``, the difference hash, a few bits apart for images that look alike; ``thumbnail``, from which it is computed."""

Fact = tuple[int, int, str, int, int, NDArray[np.uint8]]

CLEARLY = 2
"""A pixel counts as brighter than its neighbour beyond this many grey levels; less may be compression noise."""


def facts_of(image: "Image.Image", mode: str) -> Fact:
    """A row of :data:`FACTS` for an upright image in 8 bits, stored in ``mode``."""
    from PIL import Image

    thumbnail: NDArray[Any] = np.asarray(image.convert("L").resize((9, 8), Image.Resampling.BILINEAR))
    return image.width, image.height, mode, _pixels(image), _look(thumbnail), thumbnail


def _pixels(image: "Image.Image") -> int:
    # Hashed as RGB, so that a grey image equals its copy stored in colour.
    digest = hashlib.blake2b(f"{image.width}x{image.height}".encode(), digest_size=8)
    digest.update(image.convert("RGB").tobytes())
    return int.from_bytes(digest.digest(), "little")


def _look(thumbnail: NDArray[np.uint8]) -> int:
    """The difference hash: which of 8 × 9 grey pixels are clearly brighter than their left neighbours."""
    grey = thumbnail.astype(np.int16)
    return int.from_bytes(np.packbits(grey[:, 1:] > grey[:, :-1] + CLEARLY).tobytes(), "big")
