"""The cache of decoded images: reused while the files are the same, made anew when one changes or it is damaged."""

import os
import stat
from pathlib import Path

import numpy as np
import PIL
import pytest
from PIL import Image

from normatch.cli import main
from normatch.data import Reading, images
from normatch.data.cache import KEPT, Cache, Decoded
from normatch.data.images import decode_all
from normatch.errors import UserError
from tests.data.original_formats import random_bytes


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for i, image in enumerate(random_bytes(6, 9, 8, 3)):
        Image.fromarray(image).save(folder / f"{i}.png")
    (folder / "6.png").write_text("no image")
    return sorted(folder.iterdir())


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    monkeypatch.setenv("NORMATCH_CACHE", str(tmp_path / "cache"))
    return Cache()


def read(paths: list[Path], size: int | None = None) -> tuple[Decoded, bool]:
    """What was decoded, and whether it was decoded now."""
    told: list[int] = []
    reading = Reading(progress=lambda done, total: told.append(done))
    return decode_all(paths, size=size, on_bad="skip", reading=reading), bool(told)


def assert_same(one: Decoded, other: Decoded) -> None:
    np.testing.assert_array_equal(one.images, other.images)
    np.testing.assert_array_equal(one.facts, other.facts)
    assert one.bad == other.bad


def test_the_second_reading_decodes_nothing(paths: list[Path], cache: Cache) -> None:
    before = sorted(paths[0].parent.iterdir())
    first, decoded = read(paths)
    assert decoded
    again, decoded = read(paths)
    assert not decoded
    assert_same(first, again)
    assert_same(first, decode_all(paths, on_bad="skip", reading=Reading(cache=False)))
    assert first.images.shape == (6, 9, 8, 3)
    assert (first.kept.tolist(), list(first.bad)) == ([0, 1, 2, 3, 4, 5], [6])
    assert sorted(paths[0].parent.iterdir()) == before
    assert cache.entries() == list(cache.folder.iterdir())
    assert len(cache.entries()) == 1
    for place in (cache.folder, *cache.entries()):
        assert stat.S_IMODE(place.stat().st_mode) == 0o700, "the pictures may be private"
    with pytest.raises(UserError, match=r"cannot read image .*6.png: not an image of a known kind"):
        decode_all(paths)


def test_pixels_are_mapped_and_may_be_written_without_harm(paths: list[Path], cache: Cache) -> None:
    read(paths)
    images = read(paths)[0].images
    assert isinstance(images.base, np.memmap)
    images[:] = 7
    again, decoded = read(paths)
    assert not decoded
    assert not (again.images == 7).all()


def test_a_changed_added_or_removed_file_is_another_entry(
    paths: list[Path], cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    read(paths)
    assert read(paths[1:])[1]
    assert read(paths[::-1])[1]
    found = paths[0].stat()
    Image.fromarray(random_bytes(9, 8, 3)).save(paths[0])
    os.utime(paths[0], ns=(found.st_atime_ns, found.st_mtime_ns + 1))
    assert read(paths)[1]
    assert not read(paths)[1]
    monkeypatch.setattr(PIL, "__version__", "0.0.0")
    assert read(paths)[1]


def test_headers_are_not_read_again(paths: list[Path], cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    read(paths[:6], size=4)
    monkeypatch.setattr(images, "_header", None)
    assert read(paths[:6])[0].images.shape == (6, 9, 8, 3)


@pytest.mark.parametrize("name", ["pixels", "about.npz"])
@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "gone"])
def test_a_damaged_entry_is_found_and_mended(paths: list[Path], cache: Cache, name: str, damage: str) -> None:
    first, _ = read(paths)
    (entry,) = cache.entries()
    content = (entry / name).read_bytes()
    middle = len(content) // 2
    (entry / name).unlink()  # another file in its place: the one that was there is still mapped
    if damage != "gone":
        flipped = content[:middle] + bytes([content[middle] ^ 4]) + content[middle + 1 :]
        (entry / name).write_bytes({"flip": flipped, "cut": content[:-1], "empty": b""}[damage])
    again, decoded = read(paths)
    assert decoded
    assert_same(first, again)
    assert not read(paths)[1]


def test_those_used_last_are_kept(paths: list[Path], cache: Cache) -> None:
    for i in range(KEPT):
        read(paths, size=i + 4)
        os.utime(cache.entries()[0], (i, i))
    read(paths, size=4)  # used again
    read(paths, size=20)
    assert len(cache.entries()) == KEPT
    assert not read(paths, size=4)[1]
    assert read(paths, size=5)[1]


def test_what_killed_processes_left_is_deleted_not_what_is_being_written(paths: list[Path], cache: Cache) -> None:
    (cache.folder / ".part-old").mkdir(parents=True)
    (cache.folder / ".part-old" / "pixels").write_bytes(b"cut off")
    os.utime(cache.folder / ".part-old" / "pixels", (0, 0))
    decode_all(paths, on_bad="skip", reading=Reading(progress=lambda *_: cache.keep(0)))
    assert list(cache.folder.iterdir()) == cache.entries()
    assert not read(paths)[1]


def test_a_folder_that_cannot_be_written(paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NORMATCH_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(UserError, match="set NORMATCH_CACHE to another folder, or give --no-cache"):
        read(paths)


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), MemoryError()])
def test_errors_of_the_system_are_not_remembered(
    paths: list[Path], cache: Cache, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(Image, "open", fails)
        decoded = decode_all(paths, size=8, channels=3, on_bad="skip")
    assert len(decoded.images) == 0
    said = "Input/output error" if isinstance(error, OSError) else "there is too little memory for it"
    assert decoded.bad[0] == f"{paths[0]}: {said}"
    assert cache.entries() == []
    assert len(read(paths)[0].images) == 6


def test_showing_and_clearing(paths: list[Path], cache: Cache, capsys: pytest.CaptureFixture[str]) -> None:
    read(paths)
    (cache.folder / "notes.txt").write_text("the user's own")
    assert main(["data", "cache"]) == 0
    assert main(["data", "cache", "--clear"]) == 0
    shown, deleted = capsys.readouterr().out.splitlines()
    assert shown == f"1 entry, 0.0 MB: {cache.folder}"
    assert deleted == f"deleted {shown}"
    assert [path.name for path in cache.folder.iterdir()] == ["notes.txt"]


def test_a_file_with_a_header_alone_counts_the_same_the_second_time(tmp_path: Path, cache: Cache) -> None:
    """It decides the form by its header, though it cannot be decoded."""
    grey, colour = tmp_path / "grey.png", tmp_path / "cut.jpg"
    Image.fromarray(random_bytes(1, 40, 40, 1)[0, :, :, 0]).save(grey)
    Image.fromarray(random_bytes(1, 200, 150, 3)[0]).save(colour)
    colour.write_bytes(colour.read_bytes()[:3000])
    (first, decoded), (second, again) = (read([grey, colour]) for _ in range(2))
    assert (decoded, again) == (True, False)
    assert first.images.shape == (1, 64, 64, 3)
    assert_same(first, second)
