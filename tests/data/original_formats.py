"""Small data sets written in their original formats, with what a reader must find in them."""

import csv
import gzip
import hashlib
import io
import pickle
import struct
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from normatch.data import Corpus, load_corpus
from normatch.data.readers.cifar import CIFAR10, CIFAR100, Cifar
from normatch.data.readers.stl10 import read_stl10

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]

DIGITS = tuple(map(str, range(10)))
CIFAR10_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR100_NAMES = tuple(f"kind_{i:02}" for i in range(100))
STL10_NAMES = ("airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck")
FASHION_NAMES = (
    "t-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"
)  # fmt: skip
STL10_COUNTS = {"train": 50, "test": 80, "unlabeled": 100}
NO_TEST = np.zeros(0, np.uint8), np.zeros(0, np.int64)


@dataclass(frozen=True)
class Expected:
    train: Bytes
    train_labels: Ints
    test: Bytes
    """Empty if there is no test set."""
    test_labels: Ints
    classes: tuple[str, ...]
    folds: tuple[Ints, ...] = ()


@dataclass(frozen=True)
class Case:
    """One form of one data set: how the test writes it, how it is read, and a file to spoil."""

    id: str
    write: Callable[[Path], Expected]
    read: Callable[[Path], Corpus]
    victim: str | None = None
    """A file the reader cannot do without; None where there are no files."""
    checked: bool = False
    """The victim has a published checksum."""

    @property
    def name(self) -> str:
        return self.id.split(":")[0]


def state_md5(path: Path) -> None:
    """Write the checksum file that says which md5 a file packed anew has."""
    path.with_name(f"{path.name}.md5").write_text(f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.name}\n")


def random_bytes(*shape: int) -> Bytes:
    return np.random.default_rng(sum(shape)).integers(0, 256, shape, np.uint8)


def expected(classes: tuple[str, ...], train: int, test: int, *shape: int) -> Expected:
    labels = [np.random.default_rng(n).permutation(np.arange(n) % len(classes)) for n in (train, test)]
    return Expected(random_bytes(train, *shape), labels[0], random_bytes(test, *shape), labels[1], classes)


def save_png(path: Path, image: Bytes) -> None:
    """Lossless whatever the name says: images are known by their content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image).save(path, "png")


def pack(folder: Path, archive: str, inside: str, files: dict[str, bytes]) -> None:
    """Write a .tar.gz with its checksum file; level 0 only wraps, because random bytes do not compress."""
    with tarfile.open(folder / archive, "w:gz", compresslevel=0) as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(f"{inside}/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    state_md5(folder / archive)


def unpack(folder: Path, inside: str, files: dict[str, bytes]) -> None:
    (folder / inside).mkdir(parents=True)
    for name, content in files.items():
        (folder / inside / name).write_bytes(content)


class _Python2Pickler(pickle._Pickler):  # its C twin has no dispatch table for text
    """Writes text, flags and arrays as Python 2 and its NumPy did, which pickled the originals of CIFAR."""

    def _save_text(self: Any, value: str | bytes) -> None:
        content = value.encode() if isinstance(value, str) else value
        self.write(b"T" + struct.pack("<i", len(content)) + content)

    dispatch: ClassVar[dict[type, Callable[..., Any]]] = {
        **pickle._Pickler.dispatch,
        str: _save_text,
        bytes: _save_text,
        bool: lambda self, value: self.save(int(value)),
    }


def python2_pickle(value: object) -> bytes:
    file = io.BytesIO()
    _Python2Pickler(file, protocol=2).dump(value)
    return file.getvalue().replace(b"numpy._core", b"numpy.core")


def cifar(form: Cifar, classes: tuple[str, ...]) -> tuple[Expected, dict[str, bytes]]:
    """Both data sets have the same records, CIFAR-10 in six files, CIFAR-100 in two with coarse labels as well."""
    made = expected(classes, 500, 100, 32, 32, 3)
    meta = {form.names_key: list(classes), "num_vis": 3072}
    files, start = {form.meta: python2_pickle(meta)}, 0
    images, labels = np.concatenate([made.train, made.test]), np.concatenate([made.train_labels, made.test_labels])
    for name, count in hundredth(form).counts.items():
        part = slice(start, start + count)
        rows = np.ascontiguousarray(images[part].transpose(0, 3, 1, 2)).reshape(count, -1)  # red, green, blue
        own = labels[part].tolist()
        files[name] = python2_pickle({"data": rows, form.labels_key: own, "coarse_labels": [c // 5 for c in own]})
        start += count
    return made, files


def hundredth(form: Cifar) -> Cifar:
    """The form of a data set that is as the original but for the numbers of records."""
    return replace(form, counts={name: count // 100 for name, count in form.counts.items()})


def stl10(unlabelled: int = 0) -> tuple[Expected, dict[str, bytes]]:
    made = expected(STL10_NAMES, STL10_COUNTS["train"], STL10_COUNTS["test"], 96, 96, 3)
    folds = tuple(np.random.default_rng(i).permutation(50)[:10] for i in range(10))
    files = {
        "class_names.txt": "\n".join([*STL10_NAMES, ""]).encode(),
        "fold_indices.txt": "".join(" ".join(map(str, fold)) + " \n" for fold in folds).encode(),
        "train_X.bin": made.train.transpose(0, 3, 2, 1).tobytes(),
        "train_y.bin": (made.train_labels + 1).astype(np.uint8).tobytes(),
        "test_X.bin": made.test.transpose(0, 3, 2, 1).tobytes(),
        "test_y.bin": (made.test_labels + 1).astype(np.uint8).tobytes(),
    }
    if unlabelled:
        images = random_bytes(unlabelled, 96, 96, 3)
        files["unlabeled_X.bin"] = images.transpose(0, 3, 2, 1).tobytes()
        labels = np.concatenate([made.train_labels, np.full(unlabelled, -1)])
        made = replace(made, train=np.concatenate([made.train, images]), train_labels=labels)
    return replace(made, folds=folds), files


def write_svhn(folder: Path, *, extra: int = 0) -> Expected:
    from scipy.io import savemat

    made = expected(DIGITS, 30 + extra, 20, 32, 32, 3)
    parts = {"train": (made.train[:30], made.train_labels[:30]), "test": (made.test, made.test_labels)}
    if extra:
        parts["extra"] = made.train[30:], made.train_labels[30:]
    for part, (images, labels) in parts.items():
        path = folder / f"{part}_32x32.mat"
        stored = np.where(labels == 0, 10, labels).astype(np.uint8)[:, None]
        savemat(path, {"X": images.transpose(1, 2, 3, 0), "y": stored}, do_compression=True)
        state_md5(path)
    return made


def idx(array: Bytes) -> bytes:
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}i", *array.shape) + array.tobytes()


def write_idx(folder: Path, *, classes: tuple[str, ...] = DIGITS) -> Expected:
    made = expected(classes, 30, 20, 28, 28, 1)
    for name, array in (
        ("train-images-idx3-ubyte", made.train[..., 0]),
        ("train-labels-idx1-ubyte", made.train_labels.astype(np.uint8)),
        ("t10k-images-idx3-ubyte", made.test[..., 0]),
        ("t10k-labels-idx1-ubyte", made.test_labels.astype(np.uint8)),
    ):
        (folder / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
        state_md5(folder / f"{name}.gz")
    return made


def write_mini_imagenet(folder: Path) -> Expected:
    names = ("n01532829", "n01558993", "n01704323")
    train, test = random_bytes(12, 84, 84, 3), random_bytes(6, 84, 84, 3)
    for i, image in enumerate(train):
        save_png(folder / "train" / names[i // 4] / f"image_{100 + i}.JPEG", image)
    for i, image in enumerate(test):
        save_png(folder / "test" / names[i // 2] / f"image_{i}.JPEG", image)
    folds = (np.array([0, 4, 8]), np.array([3, 5, 10]), np.array([0, 1, 4, 6, 9, 11]))
    for path, fold in zip(("4000_balanced_labels/00", "4000_balanced_labels/10", "10000_balanced_labels/00"), folds):  # noqa: B905
        file = folder / "labels" / "miniimagenet" / f"{path}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"image_{100 + i}.JPEG {names[i // 4]}\n" for i in fold))
    return Expected(train, np.arange(12) // 4, test, np.arange(6) // 2, names, folds)


def write_folder(folder: Path) -> Expected:
    train, test = random_bytes(7, 40, 30, 3), random_bytes(2, 40, 30, 3)
    places = "ape/1.png ape/2.PNG bee/1.png bee/2.webp cat/x.png unlabeled/1.png unlabelled/de/ep.png"
    for place, image in zip(places.split(), train, strict=True):
        save_png(folder / "train" / place, image)
    save_png(folder / "test" / "bee" / "1.png", test[0])
    save_png(folder / "test" / "cat" / "1.png", test[1])
    (folder / "train" / "ape" / "._1.png").write_bytes(b"a file system's note, no picture")
    (folder / "train" / "ape" / "notes.txt").write_text("no picture either")
    return Expected(train, np.array([0, 0, 1, 1, 2, -1, -1]), test, np.array([1, 2]), ("ape", "bee", "cat"))


def write_manifest(folder: Path) -> Expected:
    images = random_bytes(5, 32, 32, 1)
    rows = [("b/1.png", "dog"), ("b/2.png", ""), ("1.png", " cat "), ("2.png", "dog"), ("ü, 3.png", "")]
    for (path, _), image in zip(rows, images, strict=True):
        save_png(folder / path, image)
    with (folder / "list.csv").open("w", newline="", encoding="utf-8-sig") as file:
        csv.writer(file).writerows([("path", "label"), *rows])
    return Expected(images, np.array([1, -1, 0, 1, -1]), *NO_TEST, ("cat", "dog"))


def write_arrays(folder: Path) -> Expected:
    made = replace(expected(DIGITS[:3], 8, 4, 9, 7, 1), train_labels=np.array([0, 1, 2, -1, 0, 1, 2, -1]))
    train = {"images": made.train[..., 0], "labels": made.train_labels.astype(np.int32)}
    np.savez_compressed(folder / "data.npz", **train, test_images=made.test, test_labels=made.test_labels)  # type: ignore[arg-type]
    return made


def write_digits(_folder: Path) -> Expected:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    # Sixteenths of full ink, rounded; 8 of them are exactly between 127 and 128.
    ink = np.array([round(x * 255 / 16) for x in range(17)], np.uint8)
    return Expected(ink[bunch.images.astype(int)][..., None], bunch.target.astype(np.int64), *NO_TEST, DIGITS)


def both_forms(
    id: str,
    archive: str,
    inside: str,
    victim: str,
    make: Callable[[], tuple[Expected, dict[str, bytes]]],
    read: Callable[[Path], Corpus],
) -> list[Case]:
    def write(folder: Path, put: Callable[[dict[str, bytes]], None]) -> Expected:
        made, files = make()
        put(files)
        return made

    return [
        Case(f"{id}:packed", lambda at: write(at, partial(pack, at, archive, inside)), read, archive, checked=True),
        Case(f"{id}:unpacked", lambda at: write(at, partial(unpack, at, inside)), read, f"{inside}/{victim}"),
    ]


def _named(name: str) -> Callable[[Path], Corpus]:
    return lambda where: load_corpus(name, where)


def _read_stl10(where: Path) -> Corpus:
    return read_stl10(where, STL10_COUNTS)


TEN, HUNDRED = hundredth(CIFAR10), hundredth(CIFAR100)
fashion = partial(write_idx, classes=FASHION_NAMES)
CASES = [
    Case("digits", write_digits, _named("digits")),
    *both_forms("cifar10", TEN.archive.name, TEN.folder, "data_batch_1",
                lambda: cifar(CIFAR10, CIFAR10_NAMES), TEN.read),
    *both_forms("cifar100", HUNDRED.archive.name, HUNDRED.folder, "train",
                lambda: cifar(CIFAR100, CIFAR100_NAMES), HUNDRED.read),
    *both_forms("stl10", "stl10_binary.tar.gz", "stl10_binary", "train_X.bin", stl10, _read_stl10),
    Case("svhn", write_svhn, _named("svhn"), "train_32x32.mat", checked=True),
    Case("mini-imagenet", write_mini_imagenet, _named("mini-imagenet"), "train/n01532829/image_101.JPEG"),
    Case("mnist", write_idx, _named("mnist"), "t10k-images-idx3-ubyte.gz", checked=True),
    Case("fashion-mnist", fashion, _named("fashion-mnist"), "train-labels-idx1-ubyte.gz", checked=True),
    Case("folder", write_folder, lambda where: load_corpus(str(where)), "train/bee/1.png"),
    Case("manifest", write_manifest, lambda where: load_corpus(str(where / "list.csv")), "b/2.png"),
    Case("arrays", write_arrays, lambda where: load_corpus(str(where / "data.npz")), "data.npz"),
]  # fmt: skip
