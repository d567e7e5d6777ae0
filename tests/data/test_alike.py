"""Images that look alike are found, all of them, and no others."""

import io
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_sample_images

from normatch.data.alike import NEAR, alike, looks_of, thumbnails


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


def found_in(images: list[Image.Image]) -> list[list[int]]:
    small = np.concatenate([thumbnails(np.asarray(image.convert("RGB"))[None]) for image in images])
    return alike(looks_of(small), small)


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
    found = found_in(photos + [changed(photo) for photo in photos])
    pairs = [[i, i + 12] for i in range(12)]
    assert sum(pair in found for pair in pairs) >= 10
    assert all(group in pairs for group in found), "different photographs are not alike"


def test_plain_images_are_like_no_other() -> None:
    assert found_in([Image.new("L", (20, 20), level) for level in (0, 100, 100, 255)]) == []


def test_look_alikes_are_not_chained() -> None:
    """Each image is like the next, but only like the first is the same group: a chain joined 233 different pictures."""
    looks = np.array([(1 << i) - 1 for i in range(1, 40)], np.uint64)
    thumbnails = np.tile(np.arange(72, dtype=np.uint8).reshape(8, 9), (len(looks), 1, 1))
    assert alike(looks, thumbnails) == [list(range(i, min(i + NEAR + 1, 39))) for i in range(0, 39, NEAR + 1)]


def test_thousands_of_pictures_of_one_scene_are_one_group() -> None:
    rng = np.random.default_rng(0)
    looks = np.uint64(0x00FF_FF3C_3CFF_FF00) ^ (np.uint64(1) << rng.integers(0, 3, 3000).astype(np.uint64))
    thumbnails = np.tile(np.arange(72, dtype=np.uint8).reshape(8, 9), (3000, 1, 1))
    assert alike(looks, thumbnails) == [list(range(3000))]
