"""Many files are decoded in order, a bounded number ahead; unreadable ones are named or skipped."""

import os
import threading
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from normatch.data.images import SIZES, decode_all, decode_batches, many, resize_all
from normatch.errors import UserError
from tests.data.original_formats import random_bytes


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    for i, image in enumerate(random_bytes(60, 12, 12, 3)):
        Image.fromarray(image).save(tmp_path / f"{i:02}.png")
    (tmp_path / "30.png").write_bytes(b"")
    return sorted(tmp_path.iterdir())


@pytest.mark.parametrize("batch", [3, 7, 100])
def test_batches_are_the_whole_in_order(paths: list[Path], batch: int) -> None:
    whole = decode_all(paths, size=8, channels=3, on_bad="skip")
    batches = list(decode_batches(paths, batch, size=8, channels=3, on_bad="skip"))
    for name in ("images", "facts", "kept"):
        np.testing.assert_array_equal(
            np.concatenate([getattr(one, name) for one in batches]), getattr(whole, name), strict=True
        )
    assert sum((one.bad for one in batches), ()) == whole.bad == (f"{paths[30]}: the file is empty",)
    assert whole.kept.tolist() == [i for i in range(60) if i != 30]
    np.testing.assert_array_equal(
        decode_all(paths, on_bad="skip").images, np.delete(random_bytes(60, 12, 12, 3), 30, 0)
    )


def test_results_do_not_pile_up_and_nothing_waits_for_what_has_not_begun() -> None:
    begun: list[int] = []
    hold = threading.Event()

    def do(i: int) -> int:
        begun.append(i)
        if i > 2:
            assert hold.wait(60)
        return i

    with closing(many._in_threads(do, range(1000), ahead=8)) as results:
        assert [next(results) for _ in range(3)] == [0, 1, 2]
    hold.set()
    assert max(begun) <= 2 + 8


@pytest.mark.parametrize("options", [{}, {"size": 8, "channels": 3}])
def test_unreadable_images_stop_or_are_skipped(tmp_path: Path, options: dict[str, int]) -> None:
    good = [tmp_path / f"{i}.png" for i in range(3)]
    for path, image in zip(good, random_bytes(3, 8, 8, 3), strict=True):
        Image.fromarray(image).save(path)
    cut, empty, absent, pipe = (tmp_path / name for name in ("cut.png", "empty.jpg", "absent.png", "pipe.png"))
    cut.write_bytes(good[0].read_bytes()[:150])
    empty.write_bytes(b"")
    os.mkfifo(pipe)
    paths = [good[0], cut, good[1], empty, absent, good[2], pipe, tmp_path]
    said = ["", "the file is empty", "no such file", "not a file but a device or a pipe", "a folder, not an image"]
    for bad, why in zip((cut, empty, absent, pipe, tmp_path), said, strict=True):
        with pytest.raises(UserError, match=f"cannot read image {bad}: .*{why}") as caught:
            decode_all([good[0], bad], **options)  # type: ignore[arg-type]
        assert "\n" not in str(caught.value)
    decoded = decode_all(paths, on_bad="skip", **options)  # type: ignore[arg-type]
    assert decoded.images.shape == (3, 8, 8, 3)
    assert decoded.kept.tolist() == [0, 2, 5]
    assert [line.split(": ")[0] for line in decoded.bad] == [str(bad) for bad in (cut, empty, absent, pipe, tmp_path)]
    with pytest.raises(UserError, match=r"cannot read image .*cut.png: .*, and 4 more, which .* lists; replace or"):
        decode_all(paths, **options)  # type: ignore[arg-type]


def test_a_common_size_and_common_channels(tmp_path: Path) -> None:
    def write(name: str, height: int, width: int, channels: int) -> Path:
        path = tmp_path / f"{name}.png"
        Image.fromarray(np.squeeze(random_bytes(height, width, channels))).save(path)
        return path

    same = [write(f"same{i}", 40, 50, 1) for i in range(3)]
    assert decode_all(same).images.shape == (3, 40, 50, 1)
    assert decode_all(same, channels=3).images.shape == (3, 40, 50, 3)
    assert decode_all(same, size=20).images.shape == (3, 20, 20, 1)
    assert decode_all([*same, write("colour", 40, 50, 3)]).images.shape == (4, 40, 50, 3)
    # The median of the shorter sides 40, 40, 40, 100, 100, 100, 300 is 100.
    large = [*(write(f"large{i}", 100, 170, 3) for i in range(3)), write("huge", 400, 300, 3)]
    assert decode_all([*same, *large]).images.shape == (7, 96, 96, 3)
    tiny = [write("tiny1", 9, 9, 1), write("tiny2", 9, 10, 1)]
    assert decode_all(tiny).images.shape == (2, 32, 32, 1)
    assert decode_all([large[-1], write("vast", 500, 600, 3)]).images.shape == (2, 224, 224, 3)
    assert max(SIZES) == 224
    assert decode_all([]).images.shape[0] == 0


@pytest.mark.parametrize("shape", [(9, 20, 3), (20, 9, 1), (20, 20, 1)])
def test_an_image_in_an_array_becomes_what_it_becomes_in_a_file(tmp_path: Path, shape: tuple[int, int, int]) -> None:
    """A model that was trained on arrays predicts files as it predicts the same rows."""
    images = random_bytes(5, *shape)
    small = resize_all(images, 12)
    for i, image in enumerate(images):
        Image.fromarray(image.squeeze()).save(tmp_path / f"{i}.png")
    decoded = decode_all(sorted(tmp_path.iterdir()), size=12)
    np.testing.assert_array_equal(small, decoded.images, strict=True)
    assert resize_all(small, 12) is small
