"""Image files of every kind come out upright, 8 bits deep and of one size; unreadable ones are named or skipped."""

import os
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from normatch.data.images import (
    SIZES,
    SUFFIXES,
    Reading,
    decode_all,
    decode_batches,
    fit_upright,
    in_threads,
    open_upright,
    resize_all,
)
from normatch.errors import UserError
from tests.data.original_formats import random_bytes


def save(image: Image.Image, path: Path, **options: Any) -> Path:
    image.save(path, **options)
    return path


def decode(path: Path, size: int | tuple[int, int] | None, channels: int) -> NDArray[np.uint8]:
    """The image as (H, W, C): in its own size, or in the one given."""
    images: NDArray[np.uint8] = decode_all([path], size=size, channels=channels).images
    return images.reshape(images.shape[1:])


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation(tmp_path: Path, orientation: int) -> None:
    upright = random_bytes(5, 8)
    # How a camera stores it, for each value of the tag.
    stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.T,
        6: np.rot90(upright),
        7: upright[::-1, ::-1].T,
        8: np.rot90(upright, -1),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = save(Image.fromarray(np.ascontiguousarray(stored)), tmp_path / "turned.png", exif=exif)
    np.testing.assert_array_equal(decode(path, None, 1)[..., 0], upright)
    # Sizes are compared as seen, not as stored.
    other = save(Image.fromarray(upright), tmp_path / "straight.png")
    assert decode_all([path, other]).images.shape == (2, 5, 8, 1)


def test_transparent_is_white(tmp_path: Path) -> None:
    pixels = np.array([[(10, 20, 30, 255), (10, 20, 30, 0)]], np.uint8)
    path = save(Image.fromarray(pixels), tmp_path / "rgba.png")
    assert decode(path, None, 3).tolist() == [[[10, 20, 30], [255, 255, 255]]]
    path = save(Image.fromarray(pixels).convert("LA"), tmp_path / "la.png")
    assert decode(path, None, 1)[0, 1].tolist() == [255]
    palette = Image.new("P", (2, 1))
    palette.putpalette([1, 2, 3, 200, 100, 50])
    palette.putdata([0, 1])
    path = save(palette, tmp_path / "p.png", transparency=0)
    assert decode(path, None, 3).tolist() == [[[255, 255, 255], [200, 100, 50]]]


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_sixteen_bits(tmp_path: Path, suffix: str) -> None:
    deep = np.array([[0, 200, 256, 32_768, 65_400, 65_535]], np.uint16)
    path = save(Image.fromarray(deep), tmp_path / f"deep.{suffix}")
    assert decode(path, None, 1)[..., 0].tolist() == [[0, 1, 1, 128, 254, 255]]
    assert decode_all([path]).images.shape == (1, 1, 6, 1)


def test_other_modes(tmp_path: Path) -> None:
    bits = save(Image.fromarray(np.array([[0, 255]], np.uint8)).convert("1"), tmp_path / "bits.png")
    assert decode(bits, None, 1)[..., 0].tolist() == [[0, 255]]
    cmyk = save(Image.new("CMYK", (4, 4), (0, 255, 255, 0)), tmp_path / "cmyk.tif")
    assert decode(cmyk, None, 3)[0, 0].tolist() == [255, 0, 0]
    floats = save(Image.fromarray(np.zeros((2, 2), np.float32)), tmp_path / "float.tif")
    with pytest.raises(UserError, match=r"float.tif: its pixels are floating-point numbers"):
        decode(floats, None, 1)


@pytest.mark.parametrize("size", [(64, 48), (48, 64), (20, 33), (7, 900), (32, 24)])
def test_images_that_are_not_square_are_covered_too(tmp_path: Path, size: tuple[int, int]) -> None:
    image = Image.fromarray(random_bytes(size[1], size[0], 3))
    path = save(image, tmp_path / "image.png")
    decoded = decode(path, (24, 32), 3)
    scale = max(32 / size[0], 24 / size[1])
    width, height = round(size[0] * scale), round(size[1] * scale)
    left, top = (width - 32) // 2, (height - 24) // 2
    expected = image.resize((width, height), Image.Resampling.BILINEAR).crop((left, top, left + 32, top + 24))
    np.testing.assert_array_equal(decoded, np.asarray(expected))


@pytest.mark.parametrize("size", [(60_000, 1), (1, 60_000)])
def test_a_strip_is_refused(tmp_path: Path, size: tuple[int, int]) -> None:
    """Scaled, it would have 3 billion pixels."""
    with pytest.raises(UserError, match=r"strip\.png: its .* pixels are too long a strip"):
        decode(save(Image.new("L", size), tmp_path / "strip.png"), 224, 1)


def photo(width: int, height: int) -> Image.Image:
    """Something with structure at all scales, as photographs have."""
    rng = np.random.default_rng(0)
    small = Image.fromarray(rng.integers(0, 256, (height // 8, width // 8, 3), np.uint8))
    return small.resize((width, height), Image.Resampling.BICUBIC)


@pytest.mark.parametrize("orientation", [1, 6])
@pytest.mark.parametrize(("form", "shorter"), [((32, 32, 3), 450), ((224, 224, 3), 450), ((226, 90, 1), 900)])
def test_a_large_jpeg_is_decoded_at_reduced_size(
    tmp_path: Path, form: tuple[int, int, int], shorter: int, orientation: int
) -> None:
    image = photo(1210, 900)
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = save(image, tmp_path / "a.jpg", exif=exif, quality=90)
    upright, seen = open_upright(path, form)
    assert seen == ((1210, 900, "RGB") if orientation == 1 else (900, 1210, "RGB")), "the facts are the file's"
    assert min(upright.size) == shorter
    with Image.open(path) as whole:
        expected = fit_upright(whole, form[:2], form[2])
    differences = np.abs(decode(path, form[:2], form[2]).astype(int) - expected)
    assert differences.mean() < 2
    assert (differences.max() > 0) == (shorter < 900)


def test_a_large_jpeg_is_the_same_in_training_and_prediction(tmp_path: Path) -> None:
    path = save(photo(1210, 900), tmp_path / "a.jpg")
    trained = decode_all([path], size=224)
    (predicted,) = decode_batches([path], 8, size=224, channels=3)
    np.testing.assert_array_equal(predicted.images, trained.images)


def test_only_the_formats_of_the_docs_are_opened_whatever_the_name(tmp_path: Path) -> None:
    """For an EPS file Pillow would start Ghostscript."""
    eps = save(Image.new("L", (8, 8)), tmp_path / "a.eps").rename(tmp_path / "a.png")
    with pytest.raises(UserError, match=r"cannot read image .*a\.png: not an image of a known kind"):
        decode_all([eps])
    several = tmp_path / "phone.jpg"  # some cameras write a second image behind the first
    Image.new("L", (8, 8)).save(several, "MPO", save_all=True, append_images=[Image.new("L", (4, 4))])
    assert decode_all([several]).images.shape == (1, 8, 8, 1)
    for suffix in sorted(SUFFIXES):
        image = Image.new("1" if suffix == ".pbm" else "L", (8, 8))
        assert decode_all([save(image, tmp_path / f"b{suffix}")], channels=1).images.shape == (1, 8, 8, 1)


def test_an_image_too_large_to_decode_safely_is_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(Image.new("L", (40, 40)), tmp_path / "large.png")
    for limit, said in ((1000, "its 40 × 40 pixels are too many"), (500, "exceeds limit of 1000 pixels")):
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
        assert said in decode_all([path], on_bad="skip", reading=Reading(cache=False)).bad[0]


# Many files


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
    for name in ("images", "facts"):
        np.testing.assert_array_equal(
            np.concatenate([getattr(one, name) for one in batches]), getattr(whole, name), strict=True
        )
    kept = [batch * i + at for i, one in enumerate(batches) for at in one.kept]
    assert kept == whole.kept.tolist()
    assert [line for one in batches for line in one.bad.values()] == [f"{paths[30]}: the file is empty"]
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

    with closing(in_threads(do, range(1000), ahead=8)) as results:
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
    assert list(decoded.bad) == [1, 3, 4, 6, 7]
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
