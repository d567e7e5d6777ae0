"""What is particular to one original: its optional files, its partitions, its pickles, its folds."""

import gzip
import pickle
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from normatch.cli import main
from normatch.data.archive import Layout, find
from normatch.data.dataset import UNKNOWN
from normatch.data.images import Reading
from normatch.data.load import load_corpus
from normatch.data.readers import cifar10, cifar100
from normatch.data.readers.cifar10 import load_plain
from normatch.data.readers.mnist import LARGEST, read_idx
from normatch.data.readers.stl10 import Counts, read_stl10
from normatch.data.source import Archive, MissingFiles, md5_of, sources, verify
from normatch.errors import UserError
from tests.data.original_formats import (
    CIFAR10_NAMES,
    STL10_COUNTS,
    Expected,
    cifar,
    cifar10_python,
    hundredth,
    idx,
    pack,
    python2_pickle,
    random_bytes,
    state_md5,
    stl10,
    stl10_files,
    unpack,
    write_mini_imagenet,
    write_svhn,
)
from tests.data.test_readers import assert_equal

# CIFAR


def test_cifar_as_published_has_these_counts() -> None:
    assert list(cifar10.FORM.counts.values()) == [10_000] * 6
    assert list(cifar100.FORM.counts.values()) == [50_000, 10_000]


def test_cifar10_pickled_anew(tmp_path: Path) -> None:
    content = cifar(CIFAR10_NAMES)
    unpack(tmp_path, "cifar-10-batches-py", cifar10_python(content, pickle.dumps))
    assert_equal(hundredth(cifar10.FORM)(tmp_path), content)


def test_cifar_files_may_lie_in_the_folder_itself(tmp_path: Path) -> None:
    (tmp_path / "train.bin").write_bytes(b"")
    with pytest.raises(MissingFiles, match=r"fine_label_names.txt, test.bin are missing"):
        sources.get("cifar100").read(tmp_path)


def test_cifar_batch_of_wrong_shape_or_labels(tmp_path: Path) -> None:
    read = hundredth(cifar100.FORM)
    names = {"fine_label_names": [str(i) for i in range(100)]}
    good = {"data": random_bytes(500, 3072), "fine_labels": [7] * 500}
    for bad, expected in (
        ({**good, "data": random_bytes(9, 3072)}, r"shape \(9, 3072\)"),
        ({**good, "fine_labels": [100] * 500}, "labels from 100 to 100, not 0 to 99"),
        ({**good, "fine_labels": [0.5] * 500}, "not whole numbers"),
        ({"data": good["data"]}, "lacks"),
        ([1], "holds a list"),
    ):
        for name, content in (("meta", names), ("train", bad), ("test", {})):
            (tmp_path / name).write_bytes(pickle.dumps(content))
        with pytest.raises(UserError, match=expected):
            read(tmp_path)
    (tmp_path / "meta").write_bytes(pickle.dumps({"fine_label_names": ["only one"]}))
    with pytest.raises(UserError, match="names 1 class, not 100"):
        read(tmp_path)


# Pickles


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("order", ["C", "F"])
def test_pickled_arrays_of_every_protocol(protocol: int, order: str) -> None:
    array = np.array(random_bytes(5, 7), order="C" if order == "C" else "F")
    value = {"data": array, "labels": [1, 2, 3], "name": "ü"}
    loaded = load_plain(pickle.dumps(value, protocol=protocol), "here")
    np.testing.assert_array_equal(loaded.pop("data"), array)
    assert loaded == {"labels": [1, 2, 3], "name": "ü"}


def test_pickles_of_python_2() -> None:
    array = random_bytes(3, 4)
    loaded = load_plain(python2_pickle({"data": array, "names": ["a", "b"], "n": -3}), "here")
    np.testing.assert_array_equal(loaded.pop(b"data"), array)
    assert loaded == {b"names": [b"a", b"b"], b"n": -3}


class _Harmful:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return eval, ("1 / 0",)


def test_pickles_cannot_call_functions() -> None:
    with pytest.raises(UserError, match=r"^here asks for builtins.eval"):
        load_plain(pickle.dumps(_Harmful()), "here")
    with pytest.raises(UserError, match="rot13"):
        load_plain(b"c_codecs\nencode\n(Vhello\nVrot13\ntR.", "here")
    with pytest.raises(UserError, match="not a readable pickle"):
        load_plain(b"nothing of the kind", "here")


# STL-10


def write_unlabelled_stl10(folder: Path, unlabelled: int) -> Expected:
    content = stl10()
    files = stl10_files(content)
    images = random_bytes(unlabelled, 96, 96, 3)
    files["unlabeled_X.bin"] = images.transpose(0, 3, 2, 1).tobytes()
    pack(folder, "stl10_binary.tar.gz", "stl10_binary", files)
    labels = np.concatenate([content.train_labels, np.full(unlabelled, UNKNOWN)])
    return replace(content, train=np.concatenate([content.train, images]), train_labels=labels)


def test_stl10_unlabelled_images_follow_the_labelled(tmp_path: Path) -> None:
    expected = write_unlabelled_stl10(tmp_path, unlabelled=1_000)
    assert_equal(read_stl10(tmp_path, counts=STL10_COUNTS), expected)


def test_stl10_wrong_count_of_unlabelled(tmp_path: Path) -> None:
    write_unlabelled_stl10(tmp_path, unlabelled=999)
    with pytest.raises(UserError, match=r"unlabeled_X.bin\) has 27,620,352 bytes, 27,648,000 are expected"):
        read_stl10(tmp_path, counts=STL10_COUNTS)


def test_stl10_as_published_has_these_counts(tmp_path: Path) -> None:
    unpack(tmp_path, "stl10_binary", stl10_files(stl10()))
    (tmp_path / "stl10_binary" / "fold_indices.txt").write_text(
        "".join(" ".join(map(str, range(1_000))) + "\n" for _ in range(10))
    )
    with pytest.raises(UserError, match=r"train_X.bin has 1,382,400 bytes, 138,240,000 are expected"):
        sources.get("stl10").read(tmp_path)
    assert Counts() == Counts(train=5_000, test=8_000, unlabelled=100_000, fold=1_000)


@pytest.mark.parametrize(
    ("file", "content", "expected"),
    [
        ("train_y.bin", bytes([11] * 50), "labels from 11 to 11, not 1 to 10"),
        ("train_y.bin", bytes([0] * 50), "labels from 0 to 0"),
        ("fold_indices.txt", b"0 1 2\n" * 10, "10 lines of 10 positions below 50"),
        ("fold_indices.txt", b"a b c\n" * 10, "10 lines"),
        ("class_names.txt", b"airplane\n", "names 1 class"),
    ],
)
def test_stl10_damaged_files(tmp_path: Path, file: str, content: bytes, expected: str) -> None:
    files = {**stl10_files(stl10()), file: content}
    unpack(tmp_path, "stl10_binary", files)
    with pytest.raises(UserError, match=expected) as caught:
        read_stl10(tmp_path, counts=STL10_COUNTS)
    assert file in str(caught.value)


# SVHN, idx, Mini-ImageNet


def test_svhn_extra_images_follow_the_training_images(tmp_path: Path) -> None:
    expected = write_svhn(tmp_path, extra=True)
    assert len(expected.train) == 40
    assert_equal(sources.get("svhn").read(tmp_path), expected)


def test_svhn_with_other_content(tmp_path: Path) -> None:
    from scipy.io import savemat

    write_svhn(tmp_path)
    savemat(tmp_path / "test_32x32.mat", {"X": np.zeros((32, 32, 3, 4)), "y": np.zeros((4, 1))})
    state_md5(tmp_path / "test_32x32.mat")
    with pytest.raises(UserError, match=r"test_32x32.mat does not hold uint8 images"):
        sources.get("svhn").read(tmp_path)


def test_idx_counts_and_sizes_must_agree(tmp_path: Path) -> None:
    for stem, array in (
        ("train-images-idx3-ubyte", random_bytes(5, 28, 28)),
        ("train-labels-idx1-ubyte", np.zeros(4, np.uint8)),
        ("t10k-images-idx3-ubyte", random_bytes(5, 28, 28)),
        ("t10k-labels-idx1-ubyte", np.zeros(5, np.uint8)),
    ):
        (tmp_path / stem).write_bytes(idx(array))
    with pytest.raises(UserError, match="4 labels for 5 images"):
        sources.get("mnist").read(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(np.full(5, 10, np.uint8)))
    with pytest.raises(UserError, match="label 10, not 0 to 9"):
        sources.get("mnist").read(tmp_path)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(random_bytes(5, 20, 20)))
    with pytest.raises(UserError, match="not 28×28"):
        sources.get("mnist").read(tmp_path)
    with pytest.raises(UserError, match="not an idx file"):
        read_idx(tmp_path / "train-images-idx3-ubyte", 2)


def test_a_gzip_bomb_is_read_no_further_than_the_original(tmp_path: Path) -> None:
    bomb = tmp_path / "train-images-idx3-ubyte.gz"
    with gzip.open(bomb, "wb", compresslevel=1) as file:
        file.write(bytes((0, 0, 8, 3)) + b"\xff" * 12)
        for _ in range(60):
            file.write(bytes(1 << 20))
    with pytest.raises(UserError, match=f"holds more than the {LARGEST:,} bytes of the largest original"):
        read_idx(bomb, 3)


def test_mini_imagenet_labels_of_unknown_images(tmp_path: Path) -> None:
    write_mini_imagenet(tmp_path)
    file = tmp_path / "4000_balanced_labels" / "03.txt"
    file.parent.mkdir()
    file.write_text("image_100.JPEG n01532829\n\nimage_7.JPEG n01532829\n")
    with pytest.raises(UserError, match=r"03.txt, line 3: no image train/n01532829/image_7.JPEG"):
        sources.get("mini-imagenet").read(tmp_path)


def test_mini_imagenet_is_read_as_other_pictures_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, cache = write_mini_imagenet(tmp_path / "data"), tmp_path / "cache"
    monkeypatch.setenv("NORMATCH_CACHE", str(cache))
    told: list[tuple[int, int]] = []
    reading = Reading(cache=False, progress=lambda done, total: told.append((done, total)))
    assert_equal(load_corpus("mini-imagenet", tmp_path / "data", reading=reading), expected)
    assert not cache.exists()
    assert told[-1] == (18, 18)
    assert main(["data", "inspect", "mini-imagenet", "--root", str(tmp_path / "data"), "--no-cache"]) == 0
    assert not cache.exists()
    assert_equal(load_corpus("mini-imagenet", tmp_path / "data"), expected)
    assert len(list(cache.iterdir())) == 1


# Archives and checksums


def test_the_published_checksum_counts_without_a_checksum_file(tmp_path: Path) -> None:
    path = tmp_path / "file.tar.gz"
    path.write_bytes(b"content")
    assert md5_of(path) == "9a0364b9e99bb480dd25e1f0284c8555"
    published = Archive("http://x/file.tar.gz", path.name, md5_of(path), 7)
    verify(path, published, "thing")
    path.write_bytes(b"contend")
    with pytest.raises(
        UserError, match=r"file.tar.gz has a wrong checksum: .* but 9a0364b9e99bb480dd25e1f0284c8555 is"
    ):
        verify(path, published, "thing")
    verify(path, Archive("http://x/file.tar.gz", path.name, None), "thing")
    state_md5(path)
    verify(path, published, "thing")
    (tmp_path / "file.tar.gz.md5").write_text("no checksum")
    with pytest.raises(UserError, match=r"file.tar.gz.md5 states no md5"):
        verify(path, published, "thing")


def test_an_archive_that_lacks_a_member(tmp_path: Path) -> None:
    pack(tmp_path, "a.tar.gz", "inside", {"one": b"1"})
    layout = Layout(Archive("http://x/a.tar.gz", "a.tar.gz", None), "inside", ("one", "two"))
    with pytest.raises(UserError, match=r"a.tar.gz lacks two"):
        list(find("thing", tmp_path, (layout,)).members())


@pytest.mark.parametrize("trick", ["self-link", "link", "device", "sparse", "large"])
def test_members_that_are_no_plain_files_or_too_large(tmp_path: Path, trick: str) -> None:
    """A link may lead to itself or nowhere, and a sparse file claims any size."""
    form = cifar10.FORM.python
    with tarfile.open(tmp_path / form.archive.name, "w:gz", format=tarfile.GNU_FORMAT) as tar:
        info = tarfile.TarInfo(f"{form.folder}/batches.meta")
        content = b""
        if trick in ("self-link", "link"):
            info.type = tarfile.SYMTYPE if trick == "link" else tarfile.LNKTYPE
            info.linkname = "nowhere" if trick == "link" else info.name
        elif trick == "device":
            info.type = tarfile.FIFOTYPE
        elif trick == "large":
            content = bytes(3 << 20)
        info.size = len(content)
        header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
        if trick == "sparse":  # one piece of no bytes at 909 TiB
            header[156:157] = tarfile.GNUTYPE_SPARSE
            size = b"\x80" + (909 << 40).to_bytes(11, "big")
            header[386:398], header[398:410], header[483:495] = size, b"0" * 11 + b"\0", size
            header[148:156] = b"%06o\0 " % (sum(header[:148]) + sum(header[156:]) + 8 * 32)
        tar.fileobj.write(bytes(header) + content)
    state_md5(tmp_path / form.archive.name)
    said = r"bytes, at most 1,048,576 are expected" if trick == "large" else r"lacks batches\.meta|cannot read"
    with pytest.raises(UserError, match=said):
        sources.get("cifar10").read(tmp_path)


def test_an_incomplete_folder_gives_way_to_the_archive(tmp_path: Path) -> None:
    pack(tmp_path, "a.tar.gz", "inside", {"one": b"1", "two": b"2"})
    unpack(tmp_path, "inside", {"one": b"1"})
    layout = Layout(Archive("http://x/a.tar.gz", "a.tar.gz", None), "inside", ("one", "two"))
    assert find("thing", tmp_path, (layout,)).place.name == "a.tar.gz"
    (tmp_path / "a.tar.gz").unlink()
    with pytest.raises(MissingFiles, match=r"thing: two is missing in .*inside"):
        find("thing", tmp_path, (layout,))
