"""The readers of published archives and of ``.npz`` files, fuzzed with coverage by atheris (``pip install atheris``).

``python -m tests.fuzz_archives 600`` gives them damaged archives for ten minutes. Each is read, or refused by a
UserError, within seconds; meanwhile nothing else is opened for writing, made, removed or started.
"""

import gzip
import io
import os
import sys
import tarfile
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import atheris  # type: ignore[import-not-found,import-untyped,unused-ignore]
import numpy as np

with atheris.instrument_imports(include=["normatch.data", "tarfile", "zipfile", "scipy.io", "numpy.lib"]):
    import scipy.io

    from normatch.data import Archive
    from normatch.data.arrays import read_arrays
    from normatch.data.readers.cifar import CIFAR10, load_plain
    from normatch.data.readers.mnist import read_idx
    from normatch.data.readers.svhn import _read_mat
    from normatch.data.source import reading_original
    from normatch.errors import UserError
from tests.data.original_formats import idx, python2_pickle

FORBIDDEN = ("os.", "shutil.", "socket.", "subprocess.", "ctypes.", "tempfile.")
ALLOWED = ("os.listdir", "os.scandir", "os.walk")
folder = Path(tempfile.mkdtemp())
done: list[str] = []
watching = False


def watch(event: str, args: tuple[Any, ...]) -> None:
    """Python's audit hook: what a reader does to anything but its file."""
    writes = event == "open" and (args[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    if watching and (writes or event.startswith(FORBIDDEN)) and event not in ALLOWED:
        done.append(f"{event} {args}")


TINY = replace(CIFAR10, counts={"data_batch_1": 1, "test_batch": 1}, archive=Archive("site/cifar-10-python.tar.gz"))


def read_plain(path: Path) -> None:
    with reading_original(path):
        load_plain(path.read_bytes())


READERS: tuple[tuple[str, Callable[[Path], object]], ...] = (
    (TINY.archive.name, lambda path: TINY.read(path.parent)),
    ("data_batch_1", read_plain),
    ("train-images-idx3-ubyte.gz", read_idx),
    ("packed.gz", read_idx),
    ("train_32x32.mat", _read_mat),
    ("own.npz", read_arrays),
)
"""Names of files, and what reads them. The first byte of an input chooses one."""


def samples() -> list[bytes]:
    """Files as they should be, for each reader."""
    images, tar, mat, npz = np.zeros((1, 3072), np.uint8), io.BytesIO(), io.BytesIO(), io.BytesIO()
    batch = python2_pickle({"data": images, TINY.labels_key: [1]})
    names = python2_pickle({TINY.names_key: ["cat", "dog"]})
    with tarfile.open(fileobj=tar, mode="w") as packed:  # not compressed: coverage would end at the first checksum
        for name, content in ((TINY.meta, names), ("data_batch_1", batch), ("test_batch", batch)):
            info = tarfile.TarInfo(f"{TINY.folder}/{name}")
            info.size = len(content)
            packed.addfile(info, io.BytesIO(content))
    scipy.io.savemat(mat, {"X": np.zeros((2, 2, 3, 2), np.uint8), "y": np.ones((2, 1), np.uint8)})  # type: ignore[arg-type]
    np.savez(npz, images=np.zeros((2, 2, 2), np.uint8), labels=np.arange(2))
    plain = idx(np.zeros((2, 2, 2), np.uint8))
    return [tar.getvalue(), batch, plain, gzip.compress(plain), mat.getvalue(), npz.getvalue()]


def one(given: bytes) -> bool:
    """Whether a reader reads the file whose content is given, and does not refuse it."""
    global watching
    kind = given[0] % len(READERS) if given else 0
    name, read = READERS[kind]
    path = folder / name
    path.write_bytes(gzip.compress(given[1:], 0) if kind == 2 else given[1:])
    watching = True
    try:
        read(path)
    except UserError:
        return False
    finally:
        watching = False
        path.unlink()
    return True


def checked(given: bytes) -> None:
    one(given)
    assert not done, done


def main(seconds: int) -> None:
    (folder / "corpus").mkdir()
    for i, content in enumerate(samples()):
        (folder / "corpus" / str(i)).write_bytes(bytes([i]) + content)
    for i, content in enumerate(samples()):
        assert one(bytes([i]) + content), READERS[i]
    sys.addaudithook(watch)
    warnings.simplefilter("ignore")
    flags = [
        f"-max_total_time={seconds}",
        "-timeout=30",
        "-max_len=16384",
        "-rss_limit_mb=4096",
        "-print_final_stats=1",
    ]
    atheris.Setup([sys.argv[0], *flags, f"-artifact_prefix={folder}/", str(folder / "corpus")], checked)
    atheris.Fuzz()


if __name__ == "__main__":
    main(int(sys.argv[1]))
