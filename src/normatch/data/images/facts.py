"""Facts about an image file: size, mode, and hashes to find duplicates with."""

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from normatch.data.images.decode import DEEP, Header
from normatch.text import counted

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["FACTS", "Fact", "describe_dark", "facts_of"]

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
"""``width`` and ``height`` of the upright image; ``mode``, as Pillow names it; ``pixels``, a hash of the exact pixels
(of a large JPEG at reduced size);
``look``, the difference hash, a few bits apart for images that look alike; ``thumbnail``, from which it is computed."""

Fact = tuple[int, int, str, int, int, NDArray[np.uint8]]

CLEARLY = 2
"""A pixel counts as brighter than its neighbour beyond this many grey levels; less may be compression noise."""


DARK = 64
"""Pictures of 16 bits all of whose thumbnails are below this level of 256 use at most 14 of the bits."""


def describe_dark(facts: NDArray[Any]) -> str | None:
    """A remark on deep grey images that use only the darkest of their levels, as cameras of 10, 12 or 14 bits write
    them; None if there are none."""
    deep = facts[np.isin(facts["mode"], [mode.encode() for mode in DEEP])]
    brightest = int(deep["thumbnail"].max(initial=0))
    if not len(deep) or brightest >= DARK:
        return None
    return (
        f"nearly black (level {brightest} of 255 at most): {counted(len(deep), 'picture')} of 16 or 32 bits; if fewer "
        "bits are in use, scale the values up to 65,535"
    )


def facts_of(image: "Image.Image", header: Header) -> Fact:
    """A row of :data:`FACTS` for an upright image in 8 bits whose file has that ``header``."""
    from PIL import Image

    thumbnail: NDArray[Any] = np.asarray(image.convert("L").resize((9, 8), Image.Resampling.BILINEAR))
    return *header, _pixels(image, header), _look(thumbnail), thumbnail


def _pixels(image: "Image.Image", header: Header) -> int:
    # Hashed as RGB, so that a grey image equals its copy stored in colour.
    digest = hashlib.blake2b(f"{header[0]}x{header[1]}".encode(), digest_size=8)
    digest.update(image.convert("RGB").tobytes())
    return int.from_bytes(digest.digest(), "little")


def _look(thumbnail: NDArray[np.uint8]) -> int:
    """The difference hash: which of 8 × 9 grey pixels are clearly brighter than their left neighbours."""
    grey = thumbnail.astype(np.int16)
    return int.from_bytes(np.packbits(grey[:, 1:] > grey[:, :-1] + CLEARLY).tobytes(), "big")
