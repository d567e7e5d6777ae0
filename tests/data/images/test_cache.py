"""The cache of decoded images: reused while the files are the same, made anew when one changes or it is damaged."""

import os
import stat
from pathlib import Path

import numpy as np
import PIL
import pytest
from PIL import Image

from normatch.cli import main
from normatch.data.images import Cache, Decoded, decode_all
from normatch.data.images import cache as module
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
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def read(paths: list[Path], cache: Cache, size: int | None = None) -> tuple[Decoded, bool]:
    """What was decoded, and whether it was decoded now."""
    told: list[int] = []
    decoded = decode_all(paths, size=size, on_bad="skip", cache=cache, progress=lambda done, total: told.append(done))
    return decoded, bool(told)


def assert_same(one: Decoded, other: Decoded) -> None:
    np.testing.assert_array_equal(one.images, other.images)
    np.testing.assert_array_equal(one.facts, other.facts)
    np.testing.assert_array_equal(one.kept, other.kept)
    assert one.bad == other.bad


def test_the_second_reading_decodes_nothing(paths: list[Path], cache: Cache) -> None:
    before = sorted(paths[0].parent.iterdir())
    first, decoded = read(paths, cache)
    assert decoded
    again, decoded = read(paths, cache)
    assert not decoded
    assert_same(first, again)
    assert_same(first, decode_all(paths, on_bad="skip"))
    assert first.images.shape == (6, 9, 8, 3)
    assert len(first.bad) == 1
    assert sorted(paths[0].parent.iterdir()) == before
    assert cache.entries() == list(cache.folder.iterdir())
    assert len(cache.entries()) == 1
    for place in (cache.folder, *cache.entries()):
        assert stat.S_IMODE(place.stat().st_mode) == 0o700, "the pictures may be private"


def test_pixels_are_mapped_and_may_be_written_without_harm(paths: list[Path], cache: Cache) -> None:
    read(paths, cache)
    images = read(paths, cache)[0].images
    assert isinstance(images.base, np.memmap)
    images[:] = 7
    again, decoded = read(paths, cache)
    assert not decoded
    assert not (again.images == 7).all()


def test_unreadable_files_stop_a_reading_from_the_cache_too(paths: list[Path], cache: Cache) -> None:
    for _ in range(2):
        with pytest.raises(UserError, match=r"cannot read image .*6.png: not an image of a known kind"):
            decode_all(paths, cache=cache)
    assert not read(paths, cache)[1], "what could be read was kept"


def test_a_changed_added_or_removed_file_is_another_entry(
    paths: list[Path], cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    read(paths, cache)
    assert read(paths[1:], cache)[1]
    assert read(paths[::-1], cache)[1]
    found = paths[0].stat()
    Image.fromarray(random_bytes(9, 8, 3)).save(paths[0])
    os.utime(paths[0], ns=(found.st_atime_ns, found.st_mtime_ns + 1))
    assert read(paths, cache)[1]
    assert not read(paths, cache)[1]
    monkeypatch.setattr(PIL, "__version__", "0.0.0")
    assert read(paths, cache)[1]


def test_headers_are_not_read_again(paths: list[Path], cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    read(paths[:6], cache, size=4)
    monkeypatch.setattr("normatch.data.images.many.header", None)
    assert read(paths[:6], cache)[0].images.shape == (6, 9, 8, 3)


@pytest.mark.parametrize("name", ["pixels", "facts.npy", "entry.json"])
@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "gone"])
def test_a_damaged_entry_is_found_and_mended(paths: list[Path], cache: Cache, name: str, damage: str) -> None:
    first, _ = read(paths, cache)
    (entry,) = cache.entries()
    content = (entry / name).read_bytes()
    (entry / name).unlink()  # another file in its place: the one that was there is still mapped
    if damage != "gone":
        flipped = content[:-40] + bytes([content[-40] ^ 4]) + content[-39:]
        (entry / name).write_bytes({"flip": flipped, "cut": content[:-1], "empty": b""}[damage])
    again, decoded = read(paths, cache)
    assert decoded
    assert_same(first, again)
    assert not read(paths, cache)[1]


def test_those_used_last_are_kept(paths: list[Path], cache: Cache) -> None:
    for i in range(module.KEPT):
        read(paths, cache, size=i + 4)
        os.utime(cache.entries()[0], (i, i))
    read(paths, cache, size=4)  # used again
    read(paths, cache, size=20)
    assert len(cache.entries()) == module.KEPT
    assert not read(paths, cache, size=4)[1]
    assert read(paths, cache, size=5)[1]


def test_what_killed_processes_left_is_deleted_not_what_is_being_written(paths: list[Path], cache: Cache) -> None:
    (cache.folder / ".part-old").mkdir(parents=True)
    (cache.folder / ".part-old" / "pixels").write_bytes(b"cut off")
    os.utime(cache.folder / ".part-old" / "pixels", (0, 0))
    decode_all(paths, on_bad="skip", cache=cache, progress=lambda *_: cache.clear())
    assert list(cache.folder.iterdir()) == cache.entries()
    assert not read(paths, cache)[1]


def test_a_folder_that_cannot_be_written(paths: list[Path], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="set NORMATCH_CACHE to another folder, or give --no-cache"):
        decode_all(paths, on_bad="skip", cache=Cache(tmp_path / "file" / "cache"))


def test_errors_of_the_system_are_not_remembered(
    paths: list[Path], cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(Image, "open", fails)
        decoded = decode_all(paths, size=8, channels=3, on_bad="skip", cache=cache)
    assert len(decoded.images) == 0
    assert "Input/output error" in decoded.bad[0]
    assert cache.entries() == []
    assert len(read(paths, cache)[0].images) == 6


def test_showing_and_clearing(
    paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NORMATCH_CACHE", str(tmp_path / "cache"))
    read(paths, Cache())
    (tmp_path / "cache" / "notes.txt").write_text("the user's own")
    assert main(["data", "cache"]) == 0
    assert main(["data", "cache", "--clear"]) == 0
    shown, deleted = capsys.readouterr().out.splitlines()
    assert shown == f"1 entry, 0.0 MB: {tmp_path / 'cache'}"
    assert deleted == f"deleted {shown}"
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["notes.txt"]


def test_a_file_with_a_header_alone_counts_the_same_the_second_time(tmp_path: Path, cache: Cache) -> None:
    """It decides the form by its header, though it cannot be decoded."""
    grey, colour = tmp_path / "grey.png", tmp_path / "cut.jpg"
    Image.fromarray(random_bytes(1, 40, 40, 1)[0, :, :, 0]).save(grey)
    Image.fromarray(random_bytes(1, 200, 150, 3)[0]).save(colour)
    colour.write_bytes(colour.read_bytes()[:3000])
    (first, decoded), (second, again) = (read([grey, colour], cache) for _ in range(2))
    assert (decoded, again) == (True, False)
    assert first.images.shape == (1, 64, 64, 3)
    assert_same(first, second)
