"""CIFAR-10 and CIFAR-100: 50,000 training and 10,000 test images of 10 or 100 classes, 32×32 (Krizhevsky, 2009).

Both are archives of Python pickles.
"""

import io
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from normatch.data.dataset import Corpus, Dataset
from normatch.data.source import Archive, Source, open_members, reading_original, sources

__all__ = ["CIFAR10", "CIFAR100", "Cifar", "load_plain"]

SITE = "https://www.cs.toronto.edu/~kriz"
PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class Cifar:
    """What differs between CIFAR-10 and CIFAR-100: files, keys and counts."""

    name: str
    archive: Archive
    folder: str
    meta: str
    """The file with the names of the classes, under the key ``names_key``."""
    names_key: str
    labels_key: str
    counts: Mapping[str, int]
    """The number of records in each file; the last file is the test set."""

    def read(self, where: Path) -> Corpus:
        parts: dict[str, tuple[NDArray[np.uint8], NDArray[np.int64]]] = {}
        classes: tuple[str, ...] = ()
        for member in open_members(where, self.archive, self.folder, (self.meta, *self.counts)):
            with reading_original(member.place):
                count = self.counts.get(member.name, 0)
                # The originals have 3,105 bytes a record.
                plain = load_plain(member.read(2 * count * PIXELS + (1 << 20)))
                content = {_text(key): value for key, value in plain.items()}
                if member.name == self.meta:
                    classes = tuple(map(_text, content[self.names_key]))
                else:
                    images = content["data"].reshape(count, 3, 32, 32).transpose(0, 2, 3, 1)
                    parts[member.name] = images, np.fromiter(content[self.labels_key], np.int64)

        def dataset(names: Sequence[str]) -> Dataset:
            images, labels = (np.concatenate([parts[name][i] for name in names]) for i in (0, 1))
            return Dataset(np.ascontiguousarray(images), labels, classes)

        *train, test = self.counts
        with reading_original(where):
            return Corpus(self.name, dataset(train), dataset([test]))


def _text(value: object) -> str:
    # The originals were written by Python 2, whose strings are unpickled as bytes.
    if not isinstance(value, bytes | str):  # of a list that holds another twice, which again …, text has no end
        raise ValueError(f"it has a {type(value).__name__} in place of text")
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def load_plain(content: bytes) -> Any:
    """The value of a pickle of plain data: containers, numbers, text and arrays of an old NumPy, as in the originals.

    A pickle may call any function of any module. This reader allows only those that rebuild arrays, and refuses a
    pickle that names any other. Strings of Python 2 become bytes.
    """
    return _PlainUnpickler(io.BytesIO(content), encoding="bytes").load()


class _PlainUnpickler(pickle._Unpickler):  # its C twin takes 64 GB of memory where a pickle of 20 bytes asks for it
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _KNOWN:
            raise ValueError(f"it asks for {module}.{name}, which plain data never needs")
        return _KNOWN[module, name]


def _empty(_type: object, _shape: object, _dtype: object) -> NDArray[Any]:
    # The pickle's next instruction sets shape, type and content.
    return np.empty(0, np.uint8)


def _dtype(name: Any, align: object = False, copy: object = False) -> np.dtype[Any]:
    # Old pickles give 0 and 1, which NumPy 2.4 deprecates.
    made: np.dtype[Any] = np.dtype(name, align=bool(align), copy=bool(copy))
    return made


_KNOWN: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): _dtype,
    ("numpy.core.multiarray", "_reconstruct"): _empty,
}

CIFAR10 = Cifar(
    name="cifar10",
    archive=Archive(f"{SITE}/cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a", 170_498_071),
    folder="cifar-10-batches-py",
    meta="batches.meta",
    names_key="label_names",
    labels_key="labels",
    counts={**{f"data_batch_{i}": 10_000 for i in range(1, 6)}, "test_batch": 10_000},
)

CIFAR100 = Cifar(
    name="cifar100",
    archive=Archive(f"{SITE}/cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85", 169_001_437),
    folder="cifar-100-python",
    meta="meta",
    names_key="fine_label_names",
    labels_key="fine_labels",
    counts={"train": 50_000, "test": 10_000},
)

for cifar, classes in ((CIFAR10, 10), (CIFAR100, 100)):
    sources.add(
        cifar.name,
        Source(
            summary=f"50,000 + 10,000 colour photographs in {classes} classes",
            classes=classes,
            shape=(3, 32, 32),
            read=cifar.read,
            home=f"{SITE}/cifar.html",
            archives=(cifar.archive,),
        ),
    )
