"""The cache of decoded images: reused while the files are the same, made anew when one changes or it is damaged."""

import os
from pathlib import Path

import numpy as np
import PIL
import pytest
from PIL import Image

from normatch.data.images import FACTS, Cache, Decoded, cache_folder, decode_all
from normatch.data.images import crew as crew_module
from normatch.data.images.cache import describe_cache
from normatch.data.images.worker import Result, Work, work
from normatch.errors import UserError
from normatch.locks import take
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


class Told(list[tuple[int, int]]):
    """Remembers what it was told: nothing, where nothing was decoded."""

    def __call__(self, done: int, total: int) -> None:
        self.append((done, total))


def read(paths: list[Path], cache: Cache, size: int | None = None) -> tuple[Decoded, bool]:
    """What was decoded, and whether it was decoded now."""
    told = Told()
    decoded = decode_all(paths, size=size, on_bad="skip", cache=cache, progress=told)
    return decoded, bool(told)


def assert_same(one: Decoded, other: Decoded) -> None:
    np.testing.assert_array_equal(one.images, other.images)
    np.testing.assert_array_equal(one.facts, other.facts)
    np.testing.assert_array_equal(one.kept, other.kept)
    assert one.bad == other.bad


def entries(cache: Cache) -> list[Path]:
    return sorted(cache.folder.iterdir())


def put(path: Path, content: bytes) -> None:
    """Another file in its place: the one that was there may still be mapped."""
    path.unlink()
    path.write_bytes(content)


def test_where_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NORMATCH_CACHE", str(tmp_path))
    assert Cache().folder == cache_folder() == tmp_path
    monkeypatch.delenv("NORMATCH_CACHE")
    assert cache_folder() == Path.home() / ".cache" / "normatch" / "decoded"


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
    assert len(entries(cache)) == 1


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


def test_a_changed_added_or_removed_file_is_another_entry(paths: list[Path], cache: Cache) -> None:
    read(paths, cache)
    assert read(paths[1:], cache)[1]
    assert read(paths[::-1], cache)[1]
    extra = paths[0].with_name("9.png")
    Image.fromarray(random_bytes(9, 8, 3)).save(extra)
    assert read([*paths, extra], cache)[1]
    found = paths[0].stat()
    Image.fromarray(random_bytes(9, 8, 3)).save(paths[0])
    os.utime(paths[0], ns=(found.st_atime_ns, found.st_mtime_ns + 1))
    assert read(paths, cache)[1]
    assert not read(paths, cache)[1]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are decoded."""
    names: list[str] = []

    def counted(piece: Work) -> Result:
        names.extend(Path(path).name for path in piece.paths if piece.form)
        return work(piece)

    monkeypatch.setattr(crew_module, "work", counted)
    return names


def test_files_that_only_moved_are_not_decoded_again(paths: list[Path], cache: Cache, asked: list[str]) -> None:
    """As when a picture gets a label; the entry that nothing can use any more is deleted."""
    read(paths, cache)
    small, _ = read(paths, cache, size=4)
    asked.clear()
    (paths[0].parent / "cat").mkdir()
    moved = [paths[i].rename(paths[0].parent / "cat" / paths[i].name) for i in (1, 3)]
    Image.fromarray(random_bytes(9, 8, 3)).save(paths[2])
    extra = paths[0].with_name("9.png")
    Image.fromarray(random_bytes(9, 8, 3)).save(extra)
    now = [*moved, paths[0], extra, *paths[4:], paths[2]]
    decoded, _ = read(now, cache)
    assert sorted(asked) == ["2.png", "6.png", "9.png"], "new, changed or unreadable"
    assert_same(decoded, decode_all(now, on_bad="skip"))
    assert len(entries(cache)) == 2, "one of each size"
    again, decoded_now = read(now, cache)
    assert not decoded_now
    assert_same(decoded, again)
    asked.clear()
    assert_same(read(now, cache, size=4)[0], decode_all(now, size=4, on_bad="skip"))
    assert len(entries(cache)) == 2
    assert len(small.images) == 6, "still mapped"


def test_an_entry_that_may_be_used_again_stays(paths: list[Path], cache: Cache, asked: list[str]) -> None:
    read(paths, cache)
    asked.clear()
    read(paths[:3], cache)
    assert asked == [], "all of them were there"
    assert len(entries(cache)) == 2
    assert not read(paths, cache)[1]
    extra = paths[0].with_name("9.png")
    Image.fromarray(random_bytes(9, 8, 3)).save(extra)
    read([*paths, extra], cache)
    assert len(entries(cache)) == 1, "it has all that the others had"


def test_a_file_that_was_absent_is_no_source(cache: Cache) -> None:
    """Two files without a state are not the same file."""
    form, facts = (2, 2, 1), np.zeros(2, FACTS)
    with cache.writing("key", form) as part:
        part.append(np.zeros((2, *form), np.uint8))
        part.finish([("late.png", 0), ("there.png", 7)], facts, {}, source="", keep=True)
    assert cache.known([0, 7], form)[1].tolist() == [-1, 1]


def test_a_damaged_entry_is_no_source(paths: list[Path], cache: Cache) -> None:
    read(paths, cache)
    (entry,) = entries(cache)
    content = bytearray(entry.read_bytes())
    content[0] ^= 4
    put(entry, bytes(content))
    assert_same(read(paths[:5], cache)[0], decode_all(paths[:5]))


def test_what_killed_processes_left_is_deleted(paths: list[Path], cache: Cache) -> None:
    cache.folder.mkdir()
    old, new, locked = (cache.folder / f".x-9x8x3.decoded.{i}.part" for i in range(3))
    for path in (old, new, locked):
        path.write_bytes(b"cut off")
        os.utime(path, (0, 0) if path != new else None)
    lock = take(locked)
    assert lock is not None
    with lock:
        assert [Path(row["file"]) for row in cache.listing()] == [old, new]
        read(paths, cache)
        assert not old.exists()
        assert new.exists(), "where there are no locks, another process may be writing it"
        cache.clear()
        assert entries(cache) == [locked]


def test_what_is_being_written_is_left_alone(paths: list[Path], cache: Cache) -> None:
    def clear(done: int, total: int) -> None:
        assert cache.clear() == []

    decode_all(paths, on_bad="skip", cache=cache, progress=clear)
    assert not read(paths, cache)[1]


def test_another_pillow_is_another_entry(paths: list[Path], cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    key = cache.key(paths)
    assert cache.key(paths) == key
    monkeypatch.setattr(PIL, "__version__", "0.0.0")
    assert cache.key(paths) != key


def test_another_size_is_another_entry_and_knows_the_sizes_seen(paths: list[Path], cache: Cache) -> None:
    small, decoded = read(paths, cache, size=4)
    assert decoded
    assert small.images.shape == (6, 4, 4, 3)
    own, decoded = read(paths, cache)
    assert decoded
    assert own.images.shape == (6, 9, 8, 3)
    assert not read(paths, cache, size=4)[1]
    np.testing.assert_array_equal(small.facts, own.facts)


@pytest.mark.parametrize("where", [0, 100, -500, -200, -30, -12, -1])
def test_a_flipped_bit_anywhere_is_found_and_mended(paths: list[Path], cache: Cache, where: int) -> None:
    first, _ = read(paths, cache)
    (entry,) = entries(cache)
    content = bytearray(entry.read_bytes())
    content[where] ^= 4
    put(entry, bytes(content))
    again, decoded = read(paths, cache)
    assert decoded
    assert_same(first, again)
    assert not read(paths, cache)[1]


@pytest.mark.parametrize("length", [0, 5, 700, -1])
def test_a_cut_entry_is_found_and_mended(paths: list[Path], cache: Cache, length: int) -> None:
    first, _ = read(paths, cache)
    (entry,) = entries(cache)
    put(entry, entry.read_bytes()[:length])
    assert_same(first, read(paths, cache)[0])
    assert not read(paths, cache)[1]


def test_nothing_is_left_of_a_reading_that_fails(paths: list[Path], cache: Cache) -> None:
    def interrupted(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        decode_all(paths, on_bad="skip", cache=cache, progress=interrupted)
    assert entries(cache) == []


def test_a_folder_that_cannot_be_written(paths: list[Path], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="set NORMATCH_CACHE to another folder, or give --no-cache"):
        decode_all(paths, on_bad="skip", cache=Cache(tmp_path / "file" / "cache"))


def test_errors_of_the_system_are_not_remembered(
    paths: list[Path], cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(path: Path) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(Image, "open", fails)
        decoded = decode_all(paths, size=8, channels=3, on_bad="skip", cache=cache)
    assert len(decoded.images) == 0
    assert "Input/output error" in decoded.bad[0]
    assert entries(cache) == []
    assert len(read(paths, cache)[0].images) == 6


def test_listing_and_clearing(paths: list[Path], cache: Cache) -> None:
    assert cache.listing() == []
    read(paths, cache)
    (row,) = cache.listing()
    assert (row["images"], row["shape"], row["source"]) == (6, [9, 8, 3], str(paths[0].parent))
    assert row["bytes"] == entries(cache)[0].stat().st_size
    assert "6 × 9×8×3" in describe_cache(cache.folder, [row], cleared=False)
    (cache.folder / f".{Path(row['file']).name}.123.part").write_bytes(b"left by a killed process")
    (cache.folder / "notes.txt").write_text("the user's own")
    (cache.folder / "bad.decoded").write_bytes(b"damaged")
    assert "damaged" in describe_cache(cache.folder, cache.listing(), cleared=False)
    assert "left by a killed process" in describe_cache(cache.folder, cache.listing(), cleared=False)
    assert [row.get("partial", False) for row in cache.clear()] == [False, False, True]
    assert [path.name for path in entries(cache)] == ["notes.txt"]


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
