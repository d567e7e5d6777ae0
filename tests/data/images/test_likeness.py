"""Images that look alike are found, all of them, and no others."""

import io
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_sample_images

from normatch.data.images import FACTS, facts_of, likeness
from normatch.data.images.likeness import NEAR, _candidates, _join, alike, groups


def crops(n: int, side: int = 120) -> list[Image.Image]:
    """Different pieces of two photographs with something to see in them."""
    rng = np.random.default_rng(0)
    found: list[Image.Image] = []
    while len(found) < n:
        photo = load_sample_images().images[len(found) % 2]
        y, x = rng.integers(0, photo.shape[0] - side), rng.integers(0, photo.shape[1] - side)
        piece = photo[y : y + side, x : x + side]
        if piece.std() > 45:
            found.append(Image.fromarray(piece))
    return found


def facts(images: list[Image.Image]) -> NDArray[np.void]:
    return np.array([facts_of(image, (*image.size, image.mode)) for image in images], FACTS)


def recompressed(image: Image.Image) -> Image.Image:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=75)
    return Image.open(buffer)


CHANGES: dict[str, Callable[[Image.Image], Image.Image]] = {
    "recompressed": recompressed,
    "resized": lambda image: image.resize((90, 90), Image.Resampling.BICUBIC),
    "darkened": lambda image: image.point(lambda level: level * 0.9),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_copies_of_photographs_are_found(change: str) -> None:
    changed = CHANGES[change]
    photos = crops(12)
    rows = facts(photos + [changed(photo) for photo in photos])
    found = [group.tolist() for group in alike(rows["look"], rows["thumbnail"])]
    pairs = [[i, i + 12] for i in range(12)]
    assert sum(pair in found for pair in pairs) >= 10
    assert all(group in pairs for group in found), "different photographs are not alike"
    assert len(np.unique(rows["pixels"])) == 24


def test_equal_pixels_in_any_mode() -> None:
    grey = crops(1)[0].convert("L")
    rows = facts([grey, grey.convert("RGB"), grey.resize((119, 120))])
    assert [group.tolist() for group in groups(rows["pixels"])] == [[0, 1]]


def test_plain_images_are_like_no_other() -> None:
    rows = facts([Image.new("L", (20, 20), level) for level in (0, 100, 100, 255)])
    assert alike(rows["look"], rows["thumbnail"]) == []


@given(st.lists(st.integers(0, 2**64 - 1), min_size=2, max_size=40), st.data())
def test_the_bands_miss_no_pair(hashes: list[int], data: st.DataObject) -> None:
    """Compared with all pairs, one by one; the thumbnails are all equal, so that the hashes decide."""
    near = []
    for value in hashes:
        flips = data.draw(st.lists(st.integers(0, 63), max_size=NEAR + 1))
        near.append(value ^ sum(1 << bit for bit in set(flips)))
    looks = np.array(hashes + near, np.uint64)
    thumbnails = np.tile(np.arange(72, dtype=np.uint8).reshape(8, 9), (len(looks), 1, 1))
    together: dict[int, set[int]] = {i: {i} for i in range(len(looks))}
    for i, a in enumerate(looks.tolist()):
        for j, b in enumerate(looks.tolist()):
            if a and b and i < j and (a ^ b).bit_count() <= NEAR:
                together[i] |= together[j]
                for k in together[i]:
                    together[k] = together[i]
    expected = {tuple(sorted(group)) for group in together.values() if len(group) > 1}
    assert {tuple(group.tolist()) for group in alike(looks, thumbnails)} == expected


def test_pictures_of_one_hash_are_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """They agree in all bands: compared for each choice of these, it would be twenty times."""
    rng = np.random.default_rng(0)
    looks = np.full(50, 0x00FF_FF3C_3CFF_FF00, np.uint64)
    looks[-1] ^= np.uint64(1)
    thumbnails = rng.integers(0, 256, (50, 8, 9), np.uint8)
    thumbnails[30] = thumbnails[10]
    compared: list[tuple[int, int]] = []

    def candidates(*args: Any, **options: Any) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        for first, second in _candidates(*args, **options):
            compared.extend(zip(first.tolist(), second.tolist(), strict=True))
            yield first, second

    monkeypatch.setattr(likeness, "_candidates", candidates)
    assert [group.tolist() for group in alike(looks, thumbnails)] == [[10, 30]]
    of_one_hash = [frozenset(pair) for pair in compared if 49 not in pair]
    assert len(of_one_hash) == len(set(of_one_hash)) == 49 * 48 // 2


def joined(n: int, pairs: list[tuple[int, int]]) -> list[int]:
    """The leader of each of ``n``, after the pairs were joined in turn."""
    leader = np.arange(n)
    first, second = np.array(pairs, np.int64).reshape(-1, 2).T
    _join(leader, first, second)
    return leader.tolist()


def least_reached(n: int, pairs: list[tuple[int, int]]) -> list[int]:
    """The least of all that each of ``n`` reaches by way of pairs, breadth first."""
    found = []
    for start in range(n):
        reached = [start]
        for at in reached:
            beside = [b if a == at else a for a, b in pairs if at in (a, b)]
            reached += [i for i in dict.fromkeys(beside) if i not in reached]
        found.append(min(reached))
    return found


def test_a_chain_joined_from_its_end_is_one_group() -> None:
    assert joined(5, [(2, 3), (1, 2), (0, 1), (3, 4)]) == [0] * 5


@given(st.permutations(range(20)), st.permutations(range(19)), st.integers(16, 19))
def test_chains_joined_in_any_order_are_the_groups_that_they_link(chain: list[int], order: list[int], n: int) -> None:
    links = [(min(link), max(link)) for link in pairwise(chain)]
    pairs = [links[i] for i in order[:n]]
    assert joined(20, pairs) == least_reached(20, pairs)


@given(st.lists(st.integers(0, 5)))
def test_groups_of_equal_values(values: list[int]) -> None:
    found = [group.tolist() for group in groups(np.array(values, np.uint64))]
    expected = [[i for i, v in enumerate(values) if v == value] for value in dict.fromkeys(values)]
    assert found == [group for group in expected if len(group) > 1]


def test_a_hundred_thousand_are_compared_in_seconds() -> None:
    rng = np.random.default_rng(0)
    # Few bits vary, as in pictures of one kind: many hashes agree in many bands.
    looks = rng.integers(0, 2**64, 100_000, np.uint64) & np.uint64(0x00FF_FF3C_3CFF_FF00)
    thumbnails = rng.integers(0, 256, (100_000, 8, 9), np.uint8)
    thumbnails[-1], looks[-1] = thumbnails[0], looks[0] ^ np.uint64(0x0100)
    assert [group.tolist() for group in alike(looks, thumbnails)] == [[0, 99_999]]


def test_thousands_of_pictures_of_one_scene_are_one_group_in_seconds() -> None:
    rng = np.random.default_rng(0)
    n, start = 3000, time.monotonic()
    noise = np.uint64(1) << rng.integers(0, 3, n).astype(np.uint64)
    looks = np.uint64(0x00FF_FF3C_3CFF_FF00) ^ noise
    thumbnails = np.tile(np.arange(72, dtype=np.uint8).reshape(8, 9), (n, 1, 1))
    assert [group.tolist() for group in alike(looks, thumbnails)] == [list(range(n))]
    assert time.monotonic() - start < 60, "all 4.5 million pairs were joined one by one"
