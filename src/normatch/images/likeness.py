"""Which images look alike, found without comparing all pairs.

Two images look alike if their difference hashes are at most NEAR of 64 bits apart and their thumbnails correlate by
LIKE at least. The hash finds candidates; the thumbnail tells apart what a hash of simple shapes cannot.
"""

import math
from collections.abc import Iterator
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

__all__ = ["LIKE", "NEAR", "alike", "groups"]

NEAR = 3
"""Bits of 64 by which the hashes of images that look alike may differ."""

LIKE = 0.99
"""Correlation of the thumbnails of images that look alike, whatever their brightness and contrast."""

BANDS = 2 * NEAR
"""Of so many bands, each a share of the bits, at least half are equal in two hashes that differ in NEAR bits."""

WINDOW = 1000
"""Hashes with equal bands that each is compared with. Only images with hardly any structure have more of them."""

COUNTS = np.array([number.bit_count() for number in range(1 << 16)], np.uint8)
"""How many bits are set in each number of 16 bits."""

Hashes = NDArray[np.uint64]
Indices = NDArray[np.int64]


def groups(values: NDArray[np.uint64]) -> list[Indices]:
    """Positions of equal values, for each value that occurs more than once; in order of their first positions."""
    order = np.argsort(values, kind="stable")
    starts = np.flatnonzero(np.diff(values[order], prepend=~values[order[:1]]))
    found = [part for part in np.split(order, starts[1:]) if len(part) > 1]
    return sorted(found, key=lambda part: int(part[0]))


def alike(looks: Hashes, thumbnails: NDArray[np.uint8]) -> list[Indices]:
    """Positions of images that look alike, directly or by way of others between them.

    Hashes within NEAR bits of each other agree in half of the bands at least, so only hashes that are equal there are
    compared. Images without structure, plain or evenly graded, are like no other.
    """
    structured = np.flatnonzero(looks != 0)
    hashes, patterns = looks[structured], _patterns(thumbnails[structured])
    leader = np.arange(len(structured))
    for key in _keys(hashes):
        for first, second in _candidates(hashes, key, leader):
            # All pairs of a thousand pictures of one scene are near, and after a few of them it is one group.
            apart = leader[first] != leader[second]
            first, second = first[apart], second[apart]
            correlation = np.einsum("id,id->i", patterns[first], patterns[second])
            _join(leader, first[correlation >= LIKE], second[correlation >= LIKE])
    return [structured[part] for part in groups(leader.astype(np.uint64))]


def _patterns(thumbnails: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Thumbnails as vectors of mean 0 and length 1: their products are correlations."""
    flat: NDArray[np.float32] = thumbnails.astype(np.float32).reshape(len(thumbnails), math.prod(thumbnails.shape[1:]))
    flat -= flat.mean(1, keepdims=True)
    length = np.linalg.norm(flat, axis=1, keepdims=True)
    flat /= np.where(length > 0, length, 1)
    return flat


def _keys(hashes: Hashes) -> list[Hashes]:
    """The hashes, seen through each choice of half of the bands."""
    bits = np.arange(64, dtype=np.uint64)
    set_share = np.array([np.mean((hashes >> bit) & np.uint64(1)) if len(hashes) else 0.0 for bit in bits])
    # The bits that tell most go to the bands in turn: no band is all background.
    order = np.argsort(np.abs(set_share - 0.5), kind="stable")
    bands = [np.bitwise_or.reduce(np.uint64(1) << bits[order[i::BANDS]]) for i in range(BANDS)]
    return [hashes & np.bitwise_or.reduce(np.array(chosen)) for chosen in combinations(bands, BANDS - NEAR)]


def _candidates(hashes: Hashes, key: Hashes, leader: Indices) -> Iterator[tuple[Indices, Indices]]:
    """Pairs with equal keys whose hashes differ in NEAR bits at most: no more of them at once than there are hashes.

    Where all that have a key are led by one already, there is nothing left to find.
    """
    order = np.lexsort((hashes, key))
    starts = np.flatnonzero(np.diff(key[order], prepend=~key[order[:1]]))
    led = leader[order]
    several = np.minimum.reduceat(led, starts) < np.maximum.reduceat(led, starts)
    at = np.flatnonzero(np.repeat(several, np.diff(starts, append=len(order))))
    for apart in range(1, WINDOW):
        # Each is compared with the next, the one after, and so on, while there are any with an equal key.
        at = at[at + apart < len(order)]
        at = at[key[order[at]] == key[order[at + apart]]]
        if not len(at):
            return
        near = at[_bits_set(hashes[order[at]] ^ hashes[order[at + apart]]) <= NEAR]
        yield order[near], order[near + apart]


def _bits_set(values: Hashes) -> NDArray[np.uint8]:
    # NumPy counts them itself from version 2 on.
    counts: NDArray[np.uint8] = COUNTS[values[:, None].view(np.uint16)].sum(-1, dtype=np.uint8)
    return counts


def _join(leader: Indices, first: Indices, second: Indices) -> None:
    """Unite the groups of each pair under one leader, the earliest member, and point every member straight to it."""
    for pair in zip(first.tolist(), second.tolist(), strict=True):
        a, b = (_leader(leader, item) for item in pair)
        leader[max(a, b)] = min(a, b)
    while len(first) and (leader[leader] != leader).any():
        leader[:] = leader[leader]


def _leader(leader: Indices, item: int) -> int:
    """The leader of an item's group, found with path halving."""
    while leader[item] != item:
        leader[item] = leader[leader[item]]
        item = int(leader[item])
    return item
