"""What is to be predicted arrives in batches, in order, and says what is wrong with it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from normatch.data import images
from normatch.data.samples import Files, Rows, find_samples
from normatch.errors import UserError
from tests.data.original_formats import random_bytes

SHAPE = (3, 6, 9)


@pytest.fixture
def pictures(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / "in" / f"{i}.png" for i in range(5)]
    paths[0].parent.mkdir()
    for path, image in zip(paths, random_bytes(5, 6, 9, 3), strict=True):
        Image.fromarray(image).save(path)
    return paths


@given(n=st.integers(0, 30), size=st.integers(1, 40))
def test_batches_of_rows_are_the_array(n: int, size: int) -> None:
    array = np.arange(n * 12, dtype=np.uint8).reshape(n, 2, 2, 3)
    portions = list(Rows(array, (3, 2, 2)).batches(size))
    assert all(len(portion[1]) <= size for portion in portions)
    assert [i for portion in portions for i in portion[0]] == list(range(n))
    np.testing.assert_array_equal(np.concatenate([array[:0], *(portion[1] for portion in portions)]), array)


def test_no_more_than_two_batches_of_files_are_read_ahead(
    pictures: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Path] = []

    def counted(path: Path, form: tuple[int, int, int], read: Any = images._decode) -> Any:
        opened.append(path)
        return read(path, form)

    monkeypatch.setattr(images, "_decode", counted)
    for done, _ in enumerate(Files(pictures * 20, SHAPE).batches(4), 1):
        assert len(opened) <= 4 * (done + 1)
    assert len(opened) == 100


def test_an_unreadable_file_stops_or_is_skipped(pictures: list[Path]) -> None:
    pictures[2].write_text("<html>")
    with pytest.raises(UserError, match=r"cannot read image .*2\.png"):
        list(Files(pictures, SHAPE).batches(2))
    items = Files(pictures, SHAPE, "skip")
    for _ in range(2):
        names = [name for portion in items.batches(2) for name in portion[0]]
        assert names == [str(p) for i, p in enumerate(pictures) if i != 2]
        assert len(items.skipped) == 1
        assert "2.png" in items.skipped[0]
    for path in pictures:
        path.write_text("<html>")
    with pytest.raises(UserError, match=r"no image can be read; the first: .*0\.png"):
        list(Files(pictures, SHAPE, "skip").batches(2))


def test_wrong_arrays_are_named() -> None:
    with pytest.raises(UserError, match=r"a\.npy: images are uint8 of shape \(4, 8, 8\): this model takes uint8"):
        Rows(np.zeros((4, 8, 8), np.uint8), SHAPE, "a.npy")
    with pytest.raises(UserError, match=r"images are float64 of shape"):
        Rows(np.zeros((4, 6, 9, 3)), SHAPE)
    with pytest.raises(UserError, match=r"features are float64 of shape \(4, 7\): this model takes numbers \(N, 5\)"):
        Rows(np.zeros((4, 7)), (5,))
    with pytest.raises(UserError, match=r"features are <U1 of shape"):
        Rows(np.full((4, 5), "a"), (5,))
    for bad in (np.nan, np.inf, 1e300):
        features = np.zeros((40, 5))
        features[33, 2] = bad
        with (
            pytest.raises(UserError, match=r"row 33 of the features holds NaN or infinity"),
            np.errstate(over="ignore"),
        ):
            list(Rows(features, (5,)).batches(8))
    with pytest.raises(UserError, match=r"takes feature vectors of length 5, not image files: give an array"):
        Files([Path("a.png")], (5,))


def test_places_of_all_kinds(pictures: list[Path], tmp_path: Path) -> None:
    rows = random_bytes(4, 6, 9, 3)
    np.save(tmp_path / "a.npy", rows)
    np.savez(tmp_path / "a.npz", images=rows, labels=np.arange(4))
    np.savez(tmp_path / "one.npz", rows)
    np.savez(tmp_path / "two.npz", a=rows, b=rows)
    np.savez(tmp_path / "keras.npz", x_train=rows, x_test=rows[:1], y_test=np.arange(1))
    np.savez(tmp_path / "test.npz", x_test=rows, y_test=np.arange(4))
    for name in ("a.npy", "a.npz", "one.npz", "keras.npz", "test.npz"):
        items = find_samples([tmp_path / name], [], SHAPE)
        assert (items.column, len(items)) == ("sample", 4)
        np.testing.assert_array_equal(next(items.batches(9))[1], rows)
    folder = pictures[0].parent
    assert len(find_samples([folder, pictures[0]], [], SHAPE)) == 6
    listed = find_samples([Path("-")], [f"{pictures[3]}\n", "\n", f"{pictures[1]}\n"], SHAPE)
    assert [name for portion in listed.batches(9) for name in portion[0]] == [str(pictures[3]), str(pictures[1])]
    spaced = pictures[0].with_name(" 1 .png")
    spaced.write_bytes(pictures[0].read_bytes())
    (portion,) = find_samples([Path("-")], [f"{spaced}\r\n"], SHAPE).batches(9)
    assert portion[0] == [str(spaced)]
    with pytest.raises(UserError, match=r"two\.npz has a, b: it must have 'images' \(or 'x', 'x_train', 'x_test'\)"):
        find_samples([tmp_path / "two.npz"], [], SHAPE)
    with pytest.raises(UserError, match=r"a\.npy is given with other inputs: predict one array at a time"):
        find_samples([tmp_path / "a.npy", folder], [], SHAPE)
    for empty in ([], [Path("-")]):
        with pytest.raises(UserError, match="nothing to predict"):
            find_samples(empty, ["\n"], SHAPE)


def test_a_csv_file_lists_images(pictures: list[Path]) -> None:
    folder = pictures[0].parent
    listing = folder / "some.csv"
    listing.write_text(f"label,path\ncat,{pictures[2].name}\n,{pictures[0]}\n", encoding="utf-8")
    items = find_samples([listing, pictures[1]], [], SHAPE)
    names = [name for portion in items.batches(9) for name in portion[0]]
    assert names == [str(pictures[i]) for i in (2, 0, 1)]
    listing.write_text(f"path\n{pictures[0].name}\nlost.png\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"some\.csv, line 3: no such file: .*lost\.png; paths are relative to the CSV"):
        find_samples([listing], [], SHAPE)
    items = find_samples([listing], [], SHAPE, on_bad="skip")
    assert [len(portion[0]) for portion in items.batches(9)] == [1]
    assert "lost.png" in items.skipped[0]
    listing.write_text("file\n1.png\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"no column 'path'; the first line is 'file' and must be path"):
        find_samples([listing], [], SHAPE)
    listing.write_text("path\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"lists no images: add lines such as cats/1\.png$"):
        find_samples([listing], [], SHAPE)


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_damaged_arrays_are_named(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    with pytest.raises(UserError, match=f"{path} is no file or folder"):
        find_samples([path], [], SHAPE)
    for content in (b"", b"<html>", b"PK\x03\x04 cut off", b"\x93NUMPY\x01\x00"):
        path.write_bytes(content)
        with pytest.raises(UserError, match=f"cannot read {path}: ") as caught:
            find_samples([path], [], SHAPE)
        assert "\n" not in str(caught.value)
