"""Facts about image files (size, mode, hashes of pixels and look), and which of them look alike."""

import hashlib
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from normatch.text import counted

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["DEEP", "FACTS", "HEADER", "LIKE", "NEAR", "Fact", "Header", "alike", "describe_dark", "facts_of", "groups"]

HEADER = np.dtype([("width", "<i4"), ("height", "<i4"), ("mode", "S8")])
"""``width`` and ``height`` of the upright image; ``mode`` in which it is stored, as Pillow names it."""

FACTS = np.dtype([*HEADER.descr, ("pixels", "<u8"), ("look", "<u8"), ("thumbnail", "u1", (8, 9))])
"""The header; ``pixels``, a hash of the exact pixels (of a large JPEG at reduced size); ``look``, the difference hash,
a few bits apart for images that look alike; ``thumbnail``, from which it is computed."""

Header = tuple[int, int, str]
Fact = tuple[int, int, str, int, int, NDArray[np.uint8]]

DEEP = frozenset({b"I", b"I;16", b"I;16B", b"I;16L", b"I;16N"})
"""Modes of more than 8 bits."""

CLEARLY = 2
"""A pixel counts as brighter than its neighbour beyond this many grey levels; less may be compression noise."""

DARK = 64
"""16-bit images whose thumbnails all stay below this level of 256 use at most 14 of their bits."""

NEAR = 3
"""Most bits of 64 in which the hashes of images that look alike differ."""

LIKE = 0.99
"""Least correlation of the thumbnails of images that look alike; it does not depend on brightness and contrast."""


def facts_of(image: "Image.Image", header: Header) -> Fact:
    """A row of :data:`FACTS` for an upright image in 8 bits whose file has that ``header``."""
    from PIL import Image

    # Hashed as RGB, so that a grey image equals its copy stored in colour.
    pixels = hashlib.blake2b(f"{header[0]}x{header[1]}".encode(), digest_size=8)
    pixels.update(image.convert("RGB").tobytes())
    thumbnail: NDArray[Any] = np.asarray(image.convert("L").resize((9, 8), Image.Resampling.BILINEAR))
    # The difference hash: which pixels of the thumbnail are clearly brighter than their left neighbours.
    grey = thumbnail.astype(np.int16)
    look = np.packbits(grey[:, 1:] > grey[:, :-1] + CLEARLY).tobytes()
    return *header, int.from_bytes(pixels.digest(), "little"), int.from_bytes(look, "big"), thumbnail


def describe_dark(facts: NDArray[Any]) -> str | None:
    """A remark on deep grey images that use only the darkest of their levels, as cameras of 10, 12 or 14 bits write
    them; None if there are none."""
    deep = facts[np.isin(facts["mode"], list(DEEP))]
    brightest = int(deep["thumbnail"].max(initial=0))
    if not len(deep) or brightest >= DARK:
        return None
    return (
        f"nearly black (level {brightest} of 255 at most): {counted(len(deep), 'picture')} of 16 or 32 bits; if fewer "
        "bits are in use, scale the values up to 65,535"
    )


def groups(values: NDArray[np.uint64]) -> list[list[int]]:
    """The positions of each value that occurs more than once, ordered by first position."""
    found = defaultdict[int, list[int]](list)
    for i, value in enumerate(values.tolist()):
        found[value].append(i)
    return [group for group in found.values() if len(group) > 1]


def alike(looks: NDArray[np.uint64], thumbnails: NDArray[np.uint8]) -> list[list[int]]:
    """Groups of positions of images that look like the first of their group, its representative.

    Two images look alike if their difference hashes are at most NEAR of 64 bits apart and the correlation of their
    thumbnails is at least LIKE. The hash finds candidates; the thumbnail separates simple shapes whose hashes collide.
    Images without structure (plain, or an even gradient) are never alike.
    """
    patterns = thumbnails.reshape(len(thumbnails), -1).astype(np.float32)
    patterns -= patterns.mean(1, keepdims=True)
    length = np.linalg.norm(patterns, axis=1, keepdims=True)
    patterns /= np.where(length > 0, length, 1)  # so that their dot products are correlations
    found: dict[int, list[int]] = {}
    firsts, hashes = np.empty(len(looks), np.int64), np.empty_like(looks)
    for i in np.flatnonzero(looks):
        n = len(found)
        near = firsts[:n][np.bitwise_count(hashes[:n] ^ looks[i]) <= NEAR]
        like = near[patterns[near] @ patterns[i] >= LIKE]
        if len(like):
            found[int(like[0])].append(int(i))
        else:
            firsts[n], hashes[n] = i, looks[i]
            found[int(i)] = [int(i)]
    return [group for group in found.values() if len(group) > 1]
