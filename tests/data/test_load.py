"""What the user typed, turned into a corpus or into one line that says what is wrong."""

import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from normatch.data import arrays, load_corpus
from normatch.data.load import find_listings, passed_over
from normatch.data.manifest import is_manifest, list_paths
from normatch.data.samples import find_samples
from normatch.errors import UserError
from tests.data.original_formats import (
    random_bytes,
    save_png,
    unpack,
    write_folder,
    write_idx,
)
from tests.data.test_readers import assert_equal


def complaint(data: str | Path, root: Path | None = None, *, image_size: int | None = None) -> str:
    with pytest.raises(UserError) as caught:
        load_corpus(str(data), root, image_size=image_size)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def put(folder: Path, *places: str) -> None:
    for place in places:
        save_png(folder / place, random_bytes(9, 9, 3))


def test_named_in_its_own_folder_or_in_the_root(tmp_path: Path) -> None:
    (tmp_path / "own" / "mnist").mkdir(parents=True)
    expected = write_idx(tmp_path / "own" / "mnist")
    assert_equal(load_corpus("mnist", tmp_path / "own"), expected)
    write_idx(tmp_path)
    assert_equal(load_corpus("mnist", tmp_path), expected)


def test_missing_files_are_named_with_folder_and_remedy(tmp_path: Path) -> None:
    message = complaint("cifar10", tmp_path)
    remedy = f"`normatch data get cifar10 --root {tmp_path}`"
    for part in ("cifar-10-python.tar.gz", str(tmp_path), remedy):
        assert part in message
    # Where some are, only the others are asked for.
    unpack(tmp_path, "cifar-10-batches-py", {"data_batch_1": b""})
    message = complaint("cifar10", tmp_path)
    for part in ("batches.meta, data_batch_2", "cifar-10-batches-py", remedy):
        assert part in message
    assert "train/<class>/" in complaint("mini-imagenet", tmp_path)


def test_neither_name_nor_path(tmp_path: Path) -> None:
    message = complaint("cifar11", tmp_path)
    assert "'cifar11': no such folder or file" in message
    assert "stl10" in message
    assert message.endswith("did you mean 'cifar10'?")
    other = tmp_path / "data.txt"
    other.write_text("")
    assert "give a folder of images, a .csv file or an .npz file" in complaint(other)


def test_image_size_of_a_named_data_set() -> None:
    corpus = load_corpus("digits", image_size=16)
    assert corpus.train.shape == (1, 16, 16)
    original = load_corpus("digits").train.inputs[7, ..., 0]
    expected = Image.fromarray(original).resize((16, 16), Image.Resampling.BILINEAR)
    np.testing.assert_array_equal(corpus.train.inputs[7, ..., 0], np.asarray(expected))


# Folders


@pytest.mark.parametrize(
    ("places", "classes", "labels", "tested"),
    [
        ("ape/1.png train/1.png unlabeled/1.png", ("ape", "train"), [0, 1, -1], None),
        ("train/ape/1.png unlabelled/1.png", ("ape",), [0, -1], None),
        ("ape/1.png UNLABELLED/deep/1.png", ("ape",), [0, -1], None),
        ("Train/ape/1.png Train/bee/1.png Test/bee/1.png", ("ape", "bee"), [0, 1], [1]),
    ],
)
def test_layouts_of_folders(
    tmp_path: Path, places: str, classes: tuple[str, ...], labels: list[int], tested: list[int] | None
) -> None:
    put(tmp_path, *places.split())
    corpus = load_corpus(str(tmp_path))
    assert (corpus.train.classes, corpus.train.labels.tolist()) == (classes, labels)
    assert (corpus.test.labels.tolist() if corpus.test else None) == tested


def test_folders_that_are_wrong(tmp_path: Path) -> None:
    assert "no images in" in complaint(tmp_path)
    put(tmp_path, "1.png")
    assert f"{tmp_path / '1.png'} lies in no class folder" in complaint(tmp_path)
    (tmp_path / "1.png").unlink()
    (tmp_path / "ape").mkdir()
    ape = tmp_path / "ape"
    assert f"no images in {ape}: put there .bmp, " in complaint(tmp_path)
    for name in ("1.XYZ", "2.xyz", "3"):
        (ape / name).touch()
    assert f"no images in {ape}, only .xyz 2, no suffix 1: put there .bmp," in complaint(tmp_path)
    put(ape, "deep/1.png")
    assert f"{ape} has subfolders: move its pictures directly into {ape} or, if it is no class, " in complaint(tmp_path)


def test_runs_inside_the_folder_are_not_part_of_the_data(tmp_path: Path) -> None:
    put(tmp_path, "ape/1.png", "bee/1.png")
    for run in ("runs/first", "old/of/last/year/first", "mine"):
        (tmp_path / run / "checkpoint").mkdir(parents=True)
        for name in ("config.json", "split.json"):
            (tmp_path / run / name).write_text("{}")
    assert load_corpus(str(tmp_path)).train.classes == ("ape", "bee")
    assert passed_over(find_listings(str(tmp_path))) == []
    # A folder of pictures stays a class, whatever else is in it.
    put(tmp_path, "mine/1.png")
    assert "mine has subfolders" in complaint(tmp_path)


def test_unlabelled_pictures_take_the_shape_of_arrays(tmp_path: Path) -> None:
    """Also where they are not square."""
    np.savez(tmp_path / "x.npz", images=random_bytes(4, 6, 9, 3), labels=np.arange(4) % 2)
    put(tmp_path, "more/1.png")
    train = load_corpus(str(tmp_path / "x.npz"), unlabelled=tmp_path / "more").train
    assert (train.shape, train.labels.tolist()) == ((3, 6, 9), [0, 1, 0, 1, -1])


def test_pictures_that_are_there_already_are_not_added_as_unlabelled(tmp_path: Path) -> None:
    put(tmp_path, "pets/ape/1.png", "pets/bee/1.png", "other/1.png")
    train = load_corpus(str(tmp_path / "pets"), unlabelled=tmp_path).train
    assert train.labels.tolist() == [0, 1, -1]
    assert train.files is not None
    assert train.files[-1] == str(tmp_path / "other/1.png")


def test_unreadable_images_can_be_skipped(tmp_path: Path) -> None:
    write_folder(tmp_path)
    for place in ("train/ape/1.png", "test/bee/1.png"):
        (tmp_path / place).write_bytes(b"no image")
    corpus = load_corpus(str(tmp_path), on_bad="skip")
    assert corpus.train.labels.tolist() == [0, 1, 1, 2, -1, -1]
    assert corpus.test is not None
    assert corpus.test.labels.tolist() == [2]
    assert len(corpus.skipped) == 2
    assert str(tmp_path / "train/ape/1.png") in corpus.skipped[0]


# Manifests


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "line 1: no column 'path'"),
        ("path,name\na.png,cat\n", "line 1: no column 'label'"),
        ("path,label,split\na.png,cat,Val\n", "line 2: the split is 'Val'; give train or test, or leave it empty"),
        ("path,label,split\na.png,cat,train\na.png,cat,test\n", "is listed already on line 2; delete one"),
        ("path,label\na.png,cat\n../{}/a.png,dog\n", "is listed already on line 2; delete one"),
        ("path,label\na.png,cat,dog\n", "line 2: there are more values than columns; quote commas"),
        ("path,label,split,Split\na.png,cat,,test\n", "there are 2 columns 'split'; keep one of them"),
        ("path,label, label\na.png,cat,dog\n", "there are 2 columns 'label'; keep one of them"),
        ("path, Fold ,label\na.png,1,cat\n", "the column 'Fold' is not read; call it 'split' if it says"),
        ("path,label\n", "lists no images"),
        ("path,label\n\xff\xfe.png,cat\n", "give a CSV file in UTF-8"),
        ("path,label\n,cat\n", "line 2: the path is empty"),
        ("path,label\n\nabsent.png,cat\n", "line 3: no such file"),
        ('"path" ,label\na.png,cat\n', "line 1: ',' expected after '\"'; check the quotes"),
        ('path,label\na.png,cat\n"b.png,cat\nc.png,dog\n', "line 3: unexpected end of data; check the quotes"),
        ("path,label\na.png, -1\n", "line 2: the label is '-1'; leave it empty if the class is not known, or"),
        ("path,label\na.png,NaN\n", "line 2: the label is 'NaN'; leave it empty"),
        ("path,label\na.png,Unlabeled\n", "line 2: the label is 'Unlabeled'; leave it empty"),
    ],
)
def test_manifests_that_are_wrong(tmp_path: Path, text: str, expected: str) -> None:
    put(tmp_path, "a.png")
    path = tmp_path / "list.csv"
    path.write_bytes(text.format(tmp_path.name).encode("latin1"))
    message = complaint(path)
    assert expected in message
    assert str(path) in message


@pytest.mark.parametrize(
    ("text", "classes", "labels", "tested"),
    [
        ("path,label\na.png,cat\n,\n\nb.png,dog\n , \n,,,\n", "cat dog", [0, 1], []),  # as spreadsheets write
        (",path,label\n0,a.png,cat\n1,b.png,\n", "cat", [0, -1], []),  # the unnamed index of pandas
        ("path, label\na.png,cat,\nb.png, dog\n", "cat dog", [0, 1], []),
        ('path, label\n"c, d.png", "cat"\n"b.png", "dog"\n"a.png", ""\n', "cat dog", [0, 1, -1], []),
        ("path,label\na.png, 1.0 \nb.png,1\nc.png,none\ne.png,naan\n", "1 1.0 naan none", [1, 0, 3, 2], []),
        (
            "path, Split,label\na.png,train,cat\nb.png, TEST,cat\nc.png,test,dog\ne.png,,dog\n",
            "cat dog",
            [0, 1],
            [0, 1],
        ),
    ],
)
def test_manifests(tmp_path: Path, text: str, classes: str, labels: list[int], tested: list[int]) -> None:
    put(tmp_path, "a.png", "b.png", "c.png", "c, d.png", "e.png")
    path = tmp_path / "list.csv"
    path.write_text(text)
    corpus = load_corpus(str(path))
    assert (corpus.train.classes, corpus.train.labels.tolist()) == (tuple(classes.split()), labels)
    assert (corpus.test.labels.tolist() if corpus.test else []) == tested
    assert len(list_paths(path)) == len(labels) + len(tested), "predictions are of all"


def test_files_of_a_manifest_are_called_by_their_way_from_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    put(tmp_path, "a.png", "lists/b.png", "lists/c.png", "d.png")
    rows = f"../a.png,cat\nb.png,dog\n{tmp_path / 'lists' / 'c.png'},dog\n{tmp_path / 'd.png'},dog\n"
    Path("lists/list.csv").write_text(f"path,label\n{rows}")
    for folder, place in ((".", "lists/list.csv"), (".", str(tmp_path / "lists" / "list.csv")), ("lists", "list.csv")):
        monkeypatch.chdir(folder)
        files = load_corpus(place).train.files
        assert files is not None
        assert files.tolist() == ["../a.png", "b.png", "c.png", str(tmp_path / "d.png")]


@pytest.mark.parametrize("name", ["list.csv", "data.npz", "a.png", "a.npy"])
def test_pipes_are_refused(tmp_path: Path, name: str) -> None:
    """One that nobody writes to would be waited for without end."""
    os.mkfifo(tmp_path / name)
    assert complaint(tmp_path / name).startswith(f"data is '{tmp_path / name}': give a folder of images, a .csv file")
    with pytest.raises(UserError, match=rf"{name} is no file or folder: check|it is no regular file"):
        find_samples([tmp_path / name], (), (3, 8, 8))
    assert not is_manifest(tmp_path / name)


def test_an_array_that_claims_more_than_there_is_memory(tmp_path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "|u1", "fortran_order": False, "shape": (909 << 20, 1 << 20, 1, 1)}
    )
    with zipfile.ZipFile(tmp_path / "data.npz", "w") as file:
        file.writestr("images.npy", header.getvalue())
    assert f"cannot read {tmp_path / 'data.npz'}: " in complaint(tmp_path / "data.npz")
    (tmp_path / "data.npy").write_bytes(header.getvalue())
    for name in ("data.npy", "data.npz"):
        with pytest.raises(UserError, match="cannot read"):
            find_samples([tmp_path / name], (), (1, 1 << 20, 1))


# Arrays


def test_large_images_stay_in_their_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images, vectors, labels = random_bytes(7, 4, 5, 3), np.ones((7, 2), np.float32), np.arange(7) % 2
    monkeypatch.setattr(arrays, "MAPPED", 0)
    for name, save, inputs, mapped in (
        ("images", np.savez, images, True),
        ("grey", np.savez, images[..., 0].copy(), True),
        ("turned", np.savez, np.asfortranarray(images), False),
        ("compressed", np.savez_compressed, images, False),
        ("vectors", np.savez, vectors, False),
    ):
        path = tmp_path / f"{name}.npz"
        save(path, classes=np.array(["cat", "dog"]), images=inputs, labels=labels)
        found = load_corpus(str(path)).train
        np.testing.assert_array_equal(np.asarray(found.inputs).reshape(inputs.shape), inputs)
        before, last = np.asarray(found.inputs)[-1, -1].copy(), inputs[-1:].tobytes()
        path.write_bytes(path.read_bytes().replace(last, bytes(len(last))))
        assert np.array_equal(np.asarray(found.inputs)[-1, -1], before) is not mapped
    path = tmp_path / "images.npz"
    path.write_bytes(path.read_bytes()[:-300])
    assert f"cannot read {path}: " in complaint(path)


def test_feature_vectors(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(6, 3))
    path = tmp_path / "data.npz"
    np.savez(path, x=x, y=np.array([0, 1, -1, 0, 1, -1]), classes=np.array(["no", "yes"]))
    corpus = load_corpus(str(path))
    assert corpus.train.inputs.dtype == np.float32
    np.testing.assert_allclose(corpus.train.inputs, x, rtol=1e-6)
    assert corpus.train.classes == ("no", "yes")
    assert "feature vectors" in complaint(path, image_size=8)


@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        ({"images": random_bytes(4, 5, 5)}, "it must have"),
        ({"images": random_bytes(4, 5, 5), "labels": np.zeros(3, int)}, "one int64 for each of the 4"),
        (
            {"images": random_bytes(4, 5, 5), "labels": np.zeros(4)},
            "labels are float64 of shape (4,)",
        ),
        ({"images": random_bytes(4, 5, 5, 2), "labels": np.zeros(4, int)}, "give uint8 images"),
        ({"images": np.zeros((4, 5, 5)), "labels": np.zeros(4, int)}, "give uint8 images"),
        ({"x": np.array([[np.nan]]), "y": np.zeros(1, int)}, "not finite"),
        ({"x": np.ones((2, 2)), "y": np.array([0, 2]), "classes": np.array(["a"])}, "labels run from 0 to 2"),
        ({"x": np.ones((2, 2)), "y": np.array([0, 1]), "test_x": np.ones((2, 2))}, "both or neither"),
        (
            {"x": np.ones((2, 2)), "y": np.array([0, 1]), "test_x": np.ones((2, 3)), "test_y": np.array([0, 1])},
            "make them equal",
        ),
        ({"x": np.ones((2, 2)), "y": np.array([0, 10**12])}, "the highest label is 1,000,000,000,000 with 2 samples"),
        ({"x": np.array([[object()]], dtype=object), "y": np.zeros(1, int)}, "plain arrays only"),
    ],
)
def test_arrays_that_are_wrong(
    tmp_path: Path, arrays: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]], expected: str
) -> None:
    path = tmp_path / "data.npz"
    np.savez(path, **arrays)  # type: ignore[arg-type]
    message = complaint(path)
    assert expected in message
    assert str(path) in message


def test_the_arrays_of_keras_are_read(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (9, 8, 8), np.uint8)
    labels = np.arange(9) % 3
    path = tmp_path / "mnist.npz"
    np.savez(path, x_train=images[:6], y_train=labels[:6, None], x_test=images[6:], y_test=labels[6:, None])
    corpus = load_corpus(str(path))
    assert corpus.test is not None
    np.testing.assert_array_equal(corpus.train.inputs[..., 0], images[:6])
    np.testing.assert_array_equal(corpus.train.labels, labels[:6])
    np.testing.assert_array_equal(corpus.test.labels, labels[6:])
