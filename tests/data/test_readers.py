"""The contract of every reader: originals load equal, packed or not; what is wrong is said on one line, by name."""

import gzip
import os
import pickle
import shutil
import struct
import tarfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from normatch.cli import main
from normatch.data import Archive, Corpus, Reading, load_corpus, sources
from normatch.data.readers.cifar import CIFAR10, CIFAR100, load_plain
from normatch.data.readers.mnist import LARGEST, read_idx
from normatch.data.readers.stl10 import COUNTS, read_stl10
from normatch.data.source import MissingFiles, find, open_members
from normatch.errors import UserError
from tests.data.original_formats import (
    CASES,
    HUNDRED,
    STL10_COUNTS,
    Case,
    Expected,
    pack,
    python2_pickle,
    random_bytes,
    state_md5,
    stl10,
    unpack,
    write_mini_imagenet,
    write_svhn,
)

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
with_files = pytest.mark.parametrize("case", [case for case in CASES if case.victim], ids=lambda case: case.id)


def written(case: Case, folder: Path) -> Path:
    """The file to spoil, of a data set that is in order."""
    case.write(folder)
    assert case.victim is not None
    return folder / case.victim


def complaint(case: Case, folder: Path) -> str:
    with pytest.raises(UserError) as caught:
        case.read(folder)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 600
    return message


def test_every_source_has_a_case() -> None:
    assert set(sources.names()) <= {case.name for case in CASES}


@every_case
def test_loads_equal(case: Case, tmp_path: Path) -> None:
    expected = case.write(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    corpus = case.read(tmp_path)
    assert_equal(corpus, expected)
    assert sorted(tmp_path.rglob("*")) == before, "a reader only reads"
    if case.name in sources:
        source = sources.get(case.name)
        assert corpus.name == case.name
        assert corpus.train.shape == source.shape
        # Three classes stand for Mini-ImageNet's hundred.
        assert len(corpus.train.classes) == source.classes or case.name == "mini-imagenet"


def assert_equal(corpus: Corpus, expected: Expected) -> None:
    for dataset, images, labels in (
        (corpus.train, expected.train, expected.train_labels),
        (corpus.test, expected.test, expected.test_labels),
    ):
        if not len(images):
            assert dataset is None
            continue
        assert dataset is not None
        assert isinstance(dataset.inputs, np.ndarray)
        assert dataset.inputs.flags["C_CONTIGUOUS"]
        assert dataset.inputs.flags["WRITEABLE"], "torch warns of arrays that are not"
        np.testing.assert_array_equal(dataset.inputs, images)
        np.testing.assert_array_equal(dataset.labels, labels)
        assert dataset.classes == expected.classes
    assert [fold.tolist() for fold in corpus.folds] == [fold.tolist() for fold in expected.folds]
    assert corpus.skipped == ()


@with_files
def test_missing_file(case: Case, tmp_path: Path) -> None:
    victim = written(case, tmp_path)
    victim.unlink()
    if case.name in ("folder", "mini-imagenet"):
        # The files themselves say which images there are: none is missed until the last has gone.
        shutil.rmtree(victim.parents[1])
        said = f"{tmp_path / 'test'} has subfolders" if case.name == "folder" else "train/<class>/ is missing"
    else:
        said = victim.name
    message = complaint(case, tmp_path)
    assert said in message
    assert str(tmp_path) in message


@with_files
@pytest.mark.parametrize("damage", ["cut", "flipped", "replaced"])
def test_damaged_file(case: Case, tmp_path: Path, damage: str) -> None:
    victim = written(case, tmp_path)
    content = victim.read_bytes()
    middle = len(content) // 2
    victim.write_bytes(
        {
            "cut": content[:middle],
            "flipped": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
            "replaced": b"<html>404 not found</html>" * 10,
        }[damage]
    )
    if case.checked:
        message = complaint(case, tmp_path)
        assert f"{victim} has a wrong checksum" in message
        assert "md5sum" in message
        state_md5(victim)  # with a checksum that agrees, the damage shows when the content is read
    if damage != "flipped":
        message = complaint(case, tmp_path)
        assert str(victim) in message
        assert "checksum" not in message


# CIFAR


def test_counts_as_published(tmp_path: Path) -> None:
    assert list(CIFAR10.counts.values()) == [10_000] * 6
    assert list(CIFAR100.counts.values()) == [50_000, 10_000]
    assert COUNTS == {"train": 5_000, "test": 8_000, "unlabeled": 100_000}
    unpack(tmp_path, "stl10_binary", stl10()[1])
    with pytest.raises(UserError, match=r"train_X.bin: it has 1,382,400 bytes, 138,240,000 are expected"):
        sources.get("stl10").read(tmp_path)


@pytest.mark.parametrize(
    ("bad", "expected"),
    [
        ({"data": random_bytes(9, 3072)}, "train: cannot reshape"),
        ({"fine_labels": [100] * 500}, "labels run from 100 to 100: they must lie between 0 and 99"),
        ({"fine_labels": ["cat"] * 500}, "train: invalid literal"),
    ],
    ids=["pixels", "class", "word"],
)
def test_cifar_of_other_content(tmp_path: Path, bad: dict[str, object], expected: str) -> None:
    meta = {"fine_label_names": [str(i) for i in range(100)]}
    good = {"data": random_bytes(500, 3072), "fine_labels": [7] * 500}
    test = {"data": random_bytes(100, 3072), "fine_labels": [7] * 100}
    for name, content in {"meta": meta, "train": good | bad, "test": test}.items():
        (tmp_path / name).write_bytes(python2_pickle(content))
    with pytest.raises(UserError, match=expected):
        HUNDRED.read(tmp_path)
    (tmp_path / "meta").write_bytes(python2_pickle({}))
    with pytest.raises(UserError, match="meta: it lacks 'fine_label_names'"):
        HUNDRED.read(tmp_path)


class _Harmful:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return eval, ("1 / 0",)


def test_pickles_cannot_call_functions(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"asks for builtins\.eval"):
        load_plain(pickle.dumps(_Harmful()))
    unpack(tmp_path, "cifar-100-python", dict.fromkeys(("meta", "train", "test"), pickle.dumps(_Harmful())))
    with pytest.raises(UserError, match=r"meta: it asks for builtins\.eval"):
        sources.get("cifar100").read(tmp_path)


def test_a_short_pickle_cannot_take_much_time_or_memory(tmp_path: Path) -> None:
    tracemalloc.start()
    load_plain(b"\x80\x02}r\0\0\x80\0.")  # remembers something as number 8,388,608
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1e6
    deep: object = "cat"
    for _ in range(60):
        deep = [deep, deep]
    good = {"data": random_bytes(500, 3072), "fine_labels": [7] * 500}
    files: dict[str, object] = {"meta": {"fine_label_names": ["cat"]}, "train": good, "test": good}
    for name, content, says in (
        ("meta", {"fine_label_names": [deep]}, "meta: it has a list in place of text"),
        ("train", good | {"fine_labels": [deep]}, "train: "),
    ):
        for other, own in (files | {name: content}).items():
            (tmp_path / other).write_bytes(python2_pickle(own))
        with pytest.raises(UserError, match=says):
            HUNDRED.read(tmp_path)


# STL-10, SVHN, idx, Mini-ImageNet


def test_stl10_unlabelled_images_follow_the_labelled(tmp_path: Path) -> None:
    expected, files = stl10(unlabelled=100)
    pack(tmp_path, "stl10_binary.tar.gz", "stl10_binary", files)
    assert_equal(read_stl10(tmp_path, STL10_COUNTS), expected)


@pytest.mark.parametrize(
    ("file", "content", "expected"),
    [
        ("train_y.bin", bytes([0] * 50), "it has the label 0"),
        ("train_y.bin", bytes([1] * 9), r"labels are int64 of shape \(9,\)"),
        ("fold_indices.txt", b"a b c\n" * 10, "invalid literal"),
        ("unlabeled_X.bin", b"short", "unlabeled_X.bin: it has 5 bytes, 2,764,800 are expected"),
    ],
    ids=range(4),
)
def test_stl10_damaged_files(tmp_path: Path, file: str, content: bytes, expected: str) -> None:
    unpack(tmp_path, "stl10_binary", stl10()[1] | {file: content})
    with pytest.raises(UserError, match=expected):
        read_stl10(tmp_path, STL10_COUNTS)


def test_svhn_extra_images_follow_the_training_images(tmp_path: Path) -> None:
    expected = write_svhn(tmp_path, extra=10)
    assert_equal(load_corpus("svhn", tmp_path), expected)


def test_a_matlab_file_with_an_unknown_type_is_refused(tmp_path: Path) -> None:
    """At one, scipy.io.loadmat of SciPy 1.17 ends the process."""
    path = tmp_path / "train_32x32.mat"
    write_svhn(tmp_path)
    savemat(path, {"X": random_bytes(32, 32, 3, 2), "y": np.ones((2, 1), np.uint8)})
    content = path.read_bytes()
    tag = struct.pack("<II", 2, 32 * 32 * 3 * 2)
    assert content.count(tag) == 1
    path.write_bytes(content.replace(tag, struct.pack("<II", 254, 32 * 32 * 3 * 2)))
    state_md5(path)
    with pytest.raises(UserError, match="an array has numbers of type 254, not bytes"):
        load_corpus("svhn", tmp_path)


def test_a_gzip_bomb_is_read_no_further_than_the_original(tmp_path: Path) -> None:
    bomb = tmp_path / "train-images-idx3-ubyte.gz"
    with gzip.open(bomb, "wb", compresslevel=1) as file:
        file.write(bytes((0, 0, 8, 3)) + b"\xff" * 12)
        for _ in range(60):
            file.write(bytes(1 << 20))
    with pytest.raises(UserError, match=f"holds more than the {LARGEST:,} bytes of the largest original"):
        read_idx(bomb)


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
    assert told[-1] == (18, 18)
    assert main(["data", "inspect", "mini-imagenet", "--root", str(tmp_path / "data"), "--no-cache"]) == 0
    assert not cache.exists()
    assert_equal(load_corpus("mini-imagenet", tmp_path / "data"), expected)
    assert len(list(cache.iterdir())) == 1
    (tmp_path / "data/train/n01532829/image_103.JPEG").write_text("no image")
    skipped = load_corpus("mini-imagenet", tmp_path / "data", on_bad="skip")
    assert [fold.tolist() for fold in skipped.folds] == [[0, 3, 7], [4, 9], [0, 1, 3, 5, 8, 10]]


# Archives and checksums


def test_the_published_checksum_counts_without_a_checksum_file(tmp_path: Path) -> None:
    path = tmp_path / "file.tar.gz"
    path.write_bytes(b"content")
    published = [Archive("http://x/file.tar.gz", "9a0364b9e99bb480dd25e1f0284c8555")]
    assert find(tmp_path, published) == [path]
    path.write_bytes(b"contend")
    with pytest.raises(UserError, match=r"file.tar.gz has a wrong checksum: .* should be 9a0364b9e99bb480dd25"):
        find(tmp_path, published)
    find(tmp_path, [Archive("http://x/file.tar.gz")])
    state_md5(path)
    find(tmp_path, published)
    (tmp_path / "file.tar.gz.md5").write_text("no checksum")
    with pytest.raises(UserError, match=r"should be none"):
        find(tmp_path, published)


@pytest.mark.parametrize("trick", ["absent", "self-link", "link", "device", "sparse", "large"])
def test_members_that_are_no_plain_files_or_too_large(tmp_path: Path, trick: str) -> None:
    """A link may lead to itself or nowhere, and a sparse file claims any size."""
    form = CIFAR10
    with tarfile.open(tmp_path / form.archive.name, "w:gz", format=tarfile.GNU_FORMAT) as tar:
        info = tarfile.TarInfo(f"{form.folder}/{'other' if trick == 'absent' else 'batches.meta'}")
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
    files, archive = {"one": b"1", "two": b"2"}, Archive("http://x/a.tar.gz")
    pack(tmp_path, "a.tar.gz", "inside", files)
    unpack(tmp_path, "inside", {"one": b"other"})
    members = open_members(tmp_path, archive, "inside", ("one", "two"))
    assert {member.name: member.read() for member in members} == files
    os.remove(tmp_path / "a.tar.gz")
    with pytest.raises(MissingFiles, match=r"two is missing in .*inside"):
        open_members(tmp_path, archive, "inside", ("one", "two"))
