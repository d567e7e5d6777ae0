"""Which images are copies of others, or look like them."""

from collections import defaultdict
from collections.abc import Hashable, Iterable

import numpy as np
from numpy.typing import NDArray

from normatch.data.images import in_threads

__all__ = ["LIKE", "NEAR", "alike", "groups", "looks_of", "thumbnails"]

CLEARLY = 2
"""A pixel counts as brighter than its neighbour beyond this many grey levels; less may be compression noise."""

NEAR = 3
"""Most bits of 64 in which the hashes of images that look alike differ."""

LIKE = 0.99
"""Least correlation of the thumbnails of images that look alike; it does not depend on brightness and contrast."""


def thumbnails(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Images (N, H, W, C) as 8 × 9 grey pixels each."""
    from PIL import Image

    def shrink(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        image = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
        return np.asarray(image.convert("L").resize((9, 8), Image.Resampling.BILINEAR))

    return np.array(list(in_threads(shrink, images)), np.uint8).reshape(-1, 8, 9)


def looks_of(thumbnails: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """The difference hash of each: which pixels are clearly brighter than their left neighbours."""
    grey = thumbnails.astype(np.int16)
    bits = grey[:, :, 1:] > grey[:, :, :-1] + CLEARLY
    return np.packbits(bits, axis=2).reshape(-1, 8).view(np.uint64)[:, 0]


def groups(values: Iterable[Hashable]) -> list[list[int]]:
    """The positions of each value that occurs more than once, ordered by first position."""
    found = defaultdict[Hashable, list[int]](list)
    for i, value in enumerate(values):
        found[value].append(i)
    return [group for group in found.values() if len(group) > 1]


def alike(looks: NDArray[np.uint64], thumbnails: NDArray[np.uint8]) -> list[list[int]]:
    """Groups of positions of images that look like the first of their group, its representative.

    Two images look alike if their difference hashes are at most NEAR of 64 bits apart and the correlation of their
    thumbnails is at least LIKE. The hash finds candidates; the thumbnail separates simple shapes whose hashes collide.
    Images without structure (plain, or an even gradient) are never alike.
    """
    patterns = thumbnails.reshape(len(thumbnails), 8 * 9).astype(np.float32)
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
