"""Small data sets written in their original formats, with what a reader must find in them."""

import csv
import gzip
import hashlib
import io
import struct
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from normatch.data.arrays import read_arrays
from normatch.data.dataset import Corpus
from normatch.data.load import load_corpus
from normatch.data.readers import cifar10, cifar100
from normatch.data.readers.cifar10 import Cifar, read_cifar
from normatch.data.readers.stl10 import Counts, read_stl10
from normatch.data.source import sources

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]

DIGITS = tuple(map(str, range(10)))
CIFAR10_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
NO_TEST = np.zeros(0, np.uint8), np.zeros(0, np.int64)
STL10_NAMES = ("airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck")


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

    name: str
    form: str
    write: Callable[[Path], Expected]
    read: Callable[[Path], Corpus]
    victim: str | None = None
    """A file the reader cannot do without; None where there are no files."""
    checked: bool = False
    """The victim has a published checksum."""
    images: bool = False
    """The victim is an image file."""

    @property
    def id(self) -> str:
        return f"{self.name}-{self.form}"


def state_md5(path: Path) -> None:
    """Write the checksum file that says which md5 a file packed anew has."""
    path.with_name(f"{path.name}.md5").write_text(f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.name}\n")


def random_bytes(*shape: int) -> Bytes:
    return np.random.default_rng(sum(shape)).integers(0, 256, shape, np.uint8)


def random_labels(count: int, classes: int) -> Ints:
    return np.random.default_rng(count).permutation(np.arange(count, dtype=np.int64) % classes)


# The originals of CIFAR were pickled by Python 2, whose text today's pickle cannot write: so here are its opcodes.
def python2_pickle(value: object) -> bytes:
    return b"\x80\x02" + _python2(value) + b"."


def _python2(value: object) -> bytes:
    match value:
        case dict():
            return b"}(" + b"".join(_python2(k) + _python2(v) for k, v in value.items()) + b"u"
        case list():
            return b"](" + b"".join(map(_python2, value)) + b"e"
        case tuple():
            return b"(" + b"".join(map(_python2, value)) + b"t"
        case None:
            return b"N"
        case bool():
            return b"\x88" if value else b"\x89"
        case int():
            return b"J" + struct.pack("<i", value)
        case str():
            return _python2(value.encode())
        case bytes():
            return b"T" + struct.pack("<i", len(value)) + value
        case np.ndarray():
            empty = (
                b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n" + _python2((0,)) + _python2(b"b") + b"\x87R"
            )
            dtype = b"cnumpy\ndtype\n" + _python2(value.dtype.str[1:]) + _python2(0) + _python2(1) + b"\x87R"
            dtype += _python2((3, "|", None, None, None, -1, -1, 0)) + b"b"
            state = (
                b"(" + _python2(1) + _python2(value.shape) + dtype + _python2(False) + _python2(value.tobytes()) + b"t"
            )
            return empty + state + b"b"
    raise TypeError(type(value))


def pack(folder: Path, archive: str, inside: str, files: dict[str, bytes], *, level: int = 0) -> None:
    """Write a .tar.gz with its checksum file; level 0 only wraps, because random bytes do not compress."""
    with tarfile.open(folder / archive, "w:gz", compresslevel=level) as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(f"{inside}/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    state_md5(folder / archive)


def unpack(folder: Path, inside: str, files: dict[str, bytes]) -> None:
    (folder / inside).mkdir(parents=True)
    for name, content in files.items():
        (folder / inside / name).write_bytes(content)


def _chw(images: Bytes) -> Bytes:
    """(N, H, W, C) as CIFAR's rows: red, then green, then blue."""
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2)).reshape(len(images), -1)


def _fifths(images: Bytes) -> list[slice]:
    step = len(images) // 5
    return [slice(start, start + step) for start in range(0, len(images), step)]


def cifar10_python(content: Expected, dump: Callable[[object], bytes] = python2_pickle) -> dict[str, bytes]:
    files = {
        "batches.meta": dump({"num_cases_per_batch": 10_000, "label_names": list(content.classes), "num_vis": 3072})
    }
    for i, part in enumerate(_fifths(content.train)):
        files[f"data_batch_{i + 1}"] = dump(
            {
                "batch_label": f"training batch {i + 1} of 5",
                "labels": content.train_labels[part].tolist(),
                "data": _chw(content.train[part]),
            }
        )
    files["test_batch"] = dump(
        {
            "batch_label": "testing batch 1 of 1",
            "labels": content.test_labels.tolist(),
            "data": _chw(content.test),
        }
    )
    return files


def _records(images: Bytes, *labels: Ints) -> bytes:
    return np.hstack([*(column[:, None].astype(np.uint8) for column in labels), _chw(images)]).tobytes()


def cifar10_binary(content: Expected) -> dict[str, bytes]:
    files = {"batches.meta.txt": "".join(f"{name}\n" for name in (*content.classes, "")).encode()}
    for i, part in enumerate(_fifths(content.train)):
        files[f"data_batch_{i + 1}.bin"] = _records(content.train[part], content.train_labels[part])
    files["test_batch.bin"] = _records(content.test, content.test_labels)
    return files


def cifar(classes: tuple[str, ...], train: int = 500, test: int = 100) -> Expected:
    """A hundredth of it, unless told."""
    return Expected(
        random_bytes(train, 32, 32, 3),
        random_labels(train, len(classes)),
        random_bytes(test, 32, 32, 3),
        random_labels(test, len(classes)),
        classes,
    )


def hundredth(form: Cifar) -> Callable[[Path], Corpus]:
    """The reader of a data set that is as the original but for the numbers of records."""
    return partial(read_cifar, replace(form, counts={name: count // 100 for name, count in form.counts.items()}))


CIFAR100_NAMES = tuple(f"kind_{i:02}" for i in range(100))


def cifar100_python(content: Expected) -> dict[str, bytes]:
    files = {
        "meta": python2_pickle(
            {"fine_label_names": list(content.classes), "coarse_label_names": [f"group_{i}" for i in range(20)]}
        )
    }
    for name, images, labels in (
        ("train", content.train, content.train_labels),
        ("test", content.test, content.test_labels),
    ):
        files[name] = python2_pickle(
            {
                "batch_label": name,
                "fine_labels": labels.tolist(),
                "coarse_labels": (labels // 5).tolist(),
                "data": _chw(images),
            }
        )
    return files


def cifar100_binary(content: Expected) -> dict[str, bytes]:
    return {
        "coarse_label_names.txt": "".join(f"group_{i}\n" for i in range(20)).encode(),
        "fine_label_names.txt": "".join(f"{name}\n" for name in content.classes).encode(),
        "train.bin": _records(content.train, content.train_labels // 5, content.train_labels),
        "test.bin": _records(content.test, content.test_labels // 5, content.test_labels),
    }


# A hundredth of it: the whole is gigabytes.
STL10_COUNTS = Counts(train=50, test=80, unlabelled=1_000, fold=10)


def stl10() -> Expected:
    train, test = STL10_COUNTS.train, STL10_COUNTS.test
    folds = tuple(np.random.default_rng(i).permutation(train)[: STL10_COUNTS.fold].astype(np.int64) for i in range(10))
    return Expected(
        random_bytes(train, 96, 96, 3),
        random_labels(train, 10),
        random_bytes(test, 96, 96, 3),
        random_labels(test, 10),
        STL10_NAMES,
        folds,
    )


def stl10_files(content: Expected) -> dict[str, bytes]:
    return {
        "class_names.txt": "".join(f"{name}\n" for name in content.classes).encode(),
        "fold_indices.txt": "".join(" ".join(map(str, fold)) + " \n" for fold in content.folds).encode(),
        "train_X.bin": content.train.transpose(0, 3, 2, 1).tobytes(),
        "train_y.bin": (content.train_labels + 1).astype(np.uint8).tobytes(),
        "test_X.bin": content.test.transpose(0, 3, 2, 1).tobytes(),
        "test_y.bin": (content.test_labels + 1).astype(np.uint8).tobytes(),
    }


def write_svhn(folder: Path, *, extra: bool = False) -> Expected:
    from scipy.io import savemat

    sizes = {"train": 30, "test": 20} | ({"extra": 10} if extra else {})
    images = {part: random_bytes(count, 32, 32, 3) for part, count in sizes.items()}
    labels = {part: random_labels(count, 10) for part, count in sizes.items()}
    for part in sizes:
        path = folder / f"{part}_32x32.mat"
        stored = np.where(labels[part] == 0, 10, labels[part]).astype(np.uint8)[:, None]
        savemat(path, {"X": images[part].transpose(1, 2, 3, 0), "y": stored}, do_compression=True)
        state_md5(path)
    training = [part for part in sizes if part != "test"]
    return Expected(
        np.concatenate([images[part] for part in training]),
        np.concatenate([labels[part] for part in training]),
        images["test"],
        labels["test"],
        DIGITS,
    )


def idx(array: Bytes) -> bytes:
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}i", *array.shape) + array.tobytes()


def idx_writer(classes: tuple[str, ...], *, packed: bool) -> Callable[[Path], Expected]:
    def write(folder: Path) -> Expected:
        content = Expected(
            random_bytes(30, 28, 28, 1),
            random_labels(30, 10),
            random_bytes(20, 28, 28, 1),
            random_labels(20, 10),
            classes,
        )
        for name, array in (
            ("train-images-idx3-ubyte", content.train[..., 0]),
            ("train-labels-idx1-ubyte", content.train_labels.astype(np.uint8)),
            ("t10k-images-idx3-ubyte", content.test[..., 0]),
            ("t10k-labels-idx1-ubyte", content.test_labels.astype(np.uint8)),
        ):
            if packed:
                (folder / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
                state_md5(folder / f"{name}.gz")
            else:
                (folder / name).write_bytes(idx(array))
        return content

    return write


def save_png(path: Path, image: Bytes) -> None:
    """Lossless whatever the name says: images are known by their content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image).save(path, "png")


def write_mini_imagenet(folder: Path) -> Expected:
    names = ("n01532829", "n01558993", "n01704323")
    train, test = random_bytes(12, 84, 84, 3), random_bytes(6, 84, 84, 3)
    for i, image in enumerate(train):
        save_png(folder / "train" / names[i // 4] / f"image_{100 + i}.JPEG", image)
    for i, image in enumerate(test):
        save_png(folder / "test" / names[i // 2] / f"image_{i}.JPEG", image)
    folds = (np.array([0, 4, 8]), np.array([3, 5, 10]), np.array([0, 1, 4, 6, 9, 11]))
    for path, fold in zip(
        ("4000_balanced_labels/00.txt", "4000_balanced_labels/10.txt", "10000_balanced_labels/00.txt"),
        folds,
        strict=True,
    ):
        file = folder / "labels" / "miniimagenet" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"image_{100 + i}.JPEG {names[i // 4]}\n" for i in fold))
    return Expected(train, np.arange(12) // 4, test, np.arange(6) // 2, names, folds)


def write_folder(folder: Path) -> Expected:
    train, test = random_bytes(7, 40, 30, 3), random_bytes(2, 40, 30, 3)
    places = (
        "ape/1.png",
        "ape/2.PNG",
        "bee/1.png",
        "bee/2.webp",
        "cat/x.png",
        "unlabeled/1.png",
        "unlabelled/de/ep.png",
    )
    for place, image in zip(places, train, strict=True):
        path = folder / "train" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".webp":
            Image.fromarray(image).save(path, lossless=True)
        else:
            save_png(path, image)
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
    content = Expected(
        random_bytes(8, 9, 7, 1),
        np.array([0, 1, 2, -1, 0, 1, 2, -1]),
        random_bytes(4, 9, 7, 1),
        np.arange(4) % 3,
        DIGITS[:3],
    )
    np.savez_compressed(
        folder / "data.npz",
        images=content.train[..., 0],
        labels=content.train_labels.astype(np.int32),
        test_images=content.test,
        test_labels=content.test_labels,
    )
    return content


def write_digits(_folder: Path) -> Expected:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    # Sixteenths of full ink, rounded; 8 of them are exactly between 127 and 128.
    ink = np.array([round(x * 255 / 16) for x in range(17)], np.uint8)
    return Expected(ink[bunch.images.astype(int)][..., None], bunch.target.astype(np.int64), *NO_TEST, DIGITS)


def both_forms(
    name: str,
    form: str,
    archive: str,
    inside: str,
    victim: str,
    content: Callable[[], Expected],
    files: Callable[[Expected], dict[str, bytes]],
    read: Callable[[Path], Corpus],
) -> list[Case]:
    def packed(folder: Path) -> Expected:
        expected = content()
        pack(folder, archive, inside, files(expected))
        return expected

    def unpacked(folder: Path) -> Expected:
        expected = content()
        unpack(folder, inside, files(expected))
        return expected

    return [
        Case(name, f"{form}-packed", packed, read, archive, checked=True),
        Case(name, f"{form}-unpacked", unpacked, read, f"{inside}/{victim}"),
    ]


def _named(name: str) -> Callable[[Path], Corpus]:
    return sources.get(name).read


FASHION_NAMES = (
    "t-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"
)  # fmt: skip

CASES = [
    Case("digits", "embedded", write_digits, _named("digits")),
    *both_forms(
        "cifar10", "python", "cifar-10-python.tar.gz", "cifar-10-batches-py", "data_batch_1",
        lambda: cifar(CIFAR10_NAMES), cifar10_python, hundredth(cifar10.FORM),
    ),
    *both_forms(
        "cifar10", "binary", "cifar-10-binary.tar.gz", "cifar-10-batches-bin", "data_batch_1.bin",
        lambda: cifar(CIFAR10_NAMES), cifar10_binary, hundredth(cifar10.FORM),
    ),
    *both_forms(
        "cifar100", "python", "cifar-100-python.tar.gz", "cifar-100-python", "train",
        lambda: cifar(CIFAR100_NAMES), cifar100_python, hundredth(cifar100.FORM),
    ),
    *both_forms(
        "cifar100", "binary", "cifar-100-binary.tar.gz", "cifar-100-binary", "train.bin",
        lambda: cifar(CIFAR100_NAMES), cifar100_binary, hundredth(cifar100.FORM),
    ),
    *both_forms(
        "stl10", "binary", "stl10_binary.tar.gz", "stl10_binary", "train_X.bin",
        stl10, stl10_files, lambda where: read_stl10(where, counts=STL10_COUNTS),
    ),
    Case("svhn", "mat", write_svhn, _named("svhn"), "train_32x32.mat", checked=True),
    Case("mini-imagenet", "folders", write_mini_imagenet, _named("mini-imagenet"),
         "train/n01532829/image_101.JPEG", images=True),
    Case("mnist", "packed", idx_writer(DIGITS, packed=True), _named("mnist"),
         "t10k-images-idx3-ubyte.gz", checked=True),
    Case("mnist", "unpacked", idx_writer(DIGITS, packed=False), _named("mnist"), "train-images-idx3-ubyte"),
    Case("fashion-mnist", "packed", idx_writer(FASHION_NAMES, packed=True), _named("fashion-mnist"),
         "train-labels-idx1-ubyte.gz", checked=True),
    Case("fashion-mnist", "unpacked", idx_writer(FASHION_NAMES, packed=False), _named("fashion-mnist"),
         "train-labels-idx1-ubyte"),
    Case("folder", "images", write_folder, lambda where: load_corpus(str(where)), "train/bee/1.png", images=True),
    Case("manifest", "csv", write_manifest, lambda where: load_corpus(str(where / "list.csv")), "b/2.png", images=True),
    Case("arrays", "npz", write_arrays, lambda where: read_arrays(where / "data.npz"), "data.npz"),
]  # fmt: skip
