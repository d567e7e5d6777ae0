"""Find images that look alike without comparing all pairs.

Two images look alike if their difference hashes are at most NEAR of 64 bits apart and the correlation of their
thumbnails is at least LIKE. The hash finds candidates; the thumbnail separates simple shapes whose hashes collide.
"""

import math
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["LIKE", "NEAR", "alike", "groups"]

NEAR = 3
"""Most bits of 64 in which the hashes of images that look alike differ."""

LIKE = 0.99
"""Least correlation of the thumbnails of images that look alike; it does not depend on brightness and contrast."""

BANDS = 2 * NEAR
"""The 64 bits are divided into this many bands; two hashes that differ in NEAR bits agree in at least half of them."""

WINDOW = 1000
"""Each hash is compared with fewer than this many others of an equal key. Only nearly blank images have more."""

COUNTS = np.array([number.bit_count() for number in range(1 << 16)], np.uint8)
"""The number of set bits in each 16-bit number."""

Hashes = NDArray[np.uint64]
Indices = NDArray[np.int64]


def groups(values: NDArray[np.uint64]) -> list[Indices]:
    """The positions of each value that occurs more than once, one array per value, ordered by first position."""
    order = np.argsort(values, kind="stable")
    starts = np.flatnonzero(np.diff(values[order], prepend=~values[order[:1]]))
    found = [part for part in np.split(order, starts[1:]) if len(part) > 1]
    return sorted(found, key=lambda part: int(part[0]))


def alike(looks: Hashes, thumbnails: NDArray[np.uint8]) -> list[Indices]:
    """Groups of positions of images that look alike, directly or through a chain of others.

    Hashes within NEAR bits of each other agree in at least half of the bands, so only hashes with equal halves are
    compared. Images without structure (plain, or an even gradient) are never alike.
    """
    structured = np.flatnonzero(looks != 0)
    hashes, patterns = looks[structured], _patterns(thumbnails[structured])
    leader = np.arange(len(structured))
    for number, key in enumerate(_keys(hashes)):
        for first, second in _candidates(hashes, key, leader, equal=number == 0):
            # Skip pairs that are already in one group: of many pictures of one scene nearly all pairs are.
            apart = leader[first] != leader[second]
            first, second = first[apart], second[apart]
            correlation = np.einsum("id,id->i", patterns[first], patterns[second])
            _join(leader, first[correlation >= LIKE], second[correlation >= LIKE])
    return [structured[part] for part in groups(leader.astype(np.uint64))]


def _patterns(thumbnails: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Thumbnails as vectors of mean 0 and norm 1, so that their dot products are correlations."""
    flat: NDArray[np.float32] = thumbnails.astype(np.float32).reshape(len(thumbnails), math.prod(thumbnails.shape[1:]))
    flat -= flat.mean(1, keepdims=True)
    length = np.linalg.norm(flat, axis=1, keepdims=True)
    flat /= np.where(length > 0, length, 1)
    return flat


def _keys(hashes: Hashes) -> list[Hashes]:
    """For each choice of half of the bands, the hashes masked to those bands."""
    bits = np.arange(64, dtype=np.uint64)
    set_share = np.array([np.mean((hashes >> bit) & np.uint64(1)) if len(hashes) else 0.0 for bit in bits])
    # Bits are dealt to the bands in turn, the most informative first, so that no band is all background.
    order = np.argsort(np.abs(set_share - 0.5), kind="stable")
    bands = [np.bitwise_or.reduce(np.uint64(1) << bits[order[i::BANDS]]) for i in range(BANDS)]
    return [hashes & np.bitwise_or.reduce(np.array(chosen)) for chosen in combinations(bands, BANDS - NEAR)]


def _candidates(hashes: Hashes, key: Hashes, leader: Indices, equal: bool) -> Iterator[tuple[Indices, Indices]]:
    """Pairs with equal keys whose hashes differ in at most NEAR bits; each yield has at most one pair per hash.

    Keys whose hashes are all in one group already are skipped. Equal hashes, which have every key in common and are
    neighbours in each, are pairs only if ``equal``.
    """
    order = np.lexsort((hashes, key))
    starts = np.flatnonzero(np.diff(key[order], prepend=~key[order[:1]]))
    several = _vary(leader[order], starts)
    if not equal:
        several &= _vary(hashes[order], starts)
    at = np.flatnonzero(np.repeat(several, np.diff(starts, append=len(order))))
    for apart in range(1, WINDOW):
        # Compare each with the hash ``apart`` places further on, as long as their keys are equal.
        at = at[at + apart < len(order)]
        at = at[key[order[at]] == key[order[at + apart]]]
        if not len(at):
            return
        bits = _bits_set(hashes[order[at]] ^ hashes[order[at + apart]])
        near = at[(bits <= NEAR) & (bits >= (0 if equal else 1))]
        yield order[near], order[near + apart]


def _vary(values: NDArray[Any], starts: Indices) -> NDArray[np.bool_]:
    """For each run of values, whether they differ; ``starts`` are the positions of their first."""
    return np.asarray(np.minimum.reduceat(values, starts) < np.maximum.reduceat(values, starts))


def _bits_set(values: Hashes) -> NDArray[np.uint8]:
    # NumPy has bitwise_count from version 2 on only.
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
