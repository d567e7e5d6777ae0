"""What to predict, in batches: image files, decoded one batch ahead, or the rows of an array."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from normatch.data.arrays import find_inputs, open_npz, read_array
from normatch.data.dataset import Inputs
from normatch.data.folder import find_images
from normatch.data.images import OnBad, decode_batches
from normatch.data.manifest import list_paths
from normatch.errors import UserError, reason

__all__ = ["Files", "Rows", "Samples", "find_samples"]

Shape = tuple[int, ...]

Batch = tuple[Sequence[str | int], NDArray[Any]]
"""The name of each sample, and uint8 images (N, H, W, C) or float32 vectors (N, D)."""


class Files:
    """Image files, decoded to the size and the channels of ``shape`` (C, H, W) as in training."""

    column = "path"
    """Column heading of the names."""

    def __init__(self, paths: Sequence[Path], shape: Shape, on_bad: OnBad = "stop") -> None:
        if len(shape) == 1:
            raise UserError(f"this model takes feature vectors of length {shape[0]}, not image files: give an array")
        self._paths, self._shape, self._on_bad = paths, shape, on_bad
        self.skipped: list[str] = []
        """A line (path and reason) for each unreadable file skipped so far."""

    def __len__(self) -> int:
        return len(self._paths)

    def batches(self, size: int) -> Iterator[Batch]:
        channels, height, width = self._shape
        self.skipped.clear()
        batches = decode_batches(self._paths, size, size=(height, width), channels=channels, on_bad=self._on_bad)
        for i, decoded in enumerate(batches):
            self.skipped += decoded.bad.values()
            yield [str(self._paths[i * size + at]) for at in decoded.kept], decoded.images
        if self._paths and len(self.skipped) == len(self._paths):
            raise UserError(f"no image can be read; the first: {self.skipped[0]}")


class Rows:
    """The rows of an array: uint8 images (N, H, W[, C]) or finite feature vectors (N, D). ``where`` names its file."""

    column = "sample"

    def __init__(self, array: Inputs, shape: Shape, where: str = "") -> None:
        self._array, self._where = array, f"{where}: " if where else ""
        self.skipped: list[str] = []
        self._vectors = len(shape) == 1
        if self._vectors:
            fits, takes = array.shape[1:] == shape and array.dtype.kind in "fiu", f"numbers (N, {shape[0]})"
        else:
            channels, height, width = shape
            found = (*array.shape[1:], 1) if array.ndim == 3 else array.shape[1:]
            fits = found == (height, width, channels) and array.dtype == np.uint8
            takes = f"uint8 (N, {height}, {width}, {channels}); give files to have them resized"
        if not fits:
            what = "features" if self._vectors else "images"
            raise UserError(f"{self._where}{what} are {array.dtype} of shape {array.shape}: this model takes {takes}")

    def __len__(self) -> int:
        return len(self._array)

    def batches(self, size: int) -> Iterator[Batch]:
        for start in range(0, len(self), size):
            rows = self._array[start : start + size]
            if self._vectors:
                with np.errstate(over="ignore"):
                    rows = rows.astype(np.float32)
                finite = np.isfinite(rows).all(1)
                if not finite.all():
                    raise UserError(
                        f"{self._where}row {start + int(finite.argmin())} of the features holds NaN or infinity, or "
                        "overflows float32: fix or drop it"
                    )
            elif rows.ndim == 3:
                rows = rows[..., None]
            yield range(start, start + len(rows)), rows


Samples = Files | Rows


def find_samples(places: Sequence[Path], listed: Iterable[str], shape: Shape, on_bad: OnBad = "stop") -> Samples:
    """Image files, all images of folders, those that CSV files list, or the rows of one ``.npy`` or ``.npz`` file.

    The place ``-`` stands for the paths in ``listed``, one per line.
    """
    wanted: list[Path] = []
    for place in places:
        if place == Path("-"):
            wanted += [Path(line.rstrip("\r\n")) for line in listed if line.strip()]
        else:
            wanted.append(place)
    if not wanted:
        raise UserError(
            "nothing to predict: give image files, folders, a CSV file that lists images or an array, or paths on "
            "standard input with -"
        )
    array = next((place for place in wanted if place.suffix.lower() in (".npy", ".npz") and not place.is_dir()), None)
    if array is None:
        return Files([image for place in wanted for image in _images(place, on_bad)], shape, on_bad)
    if len(wanted) > 1:
        raise UserError(f"{array} is given with other inputs: predict one array at a time, whose rows are numbered")
    return Rows(_read(array), shape, str(array))


def _images(place: Path, on_bad: OnBad) -> list[Path]:
    listed = place.suffix.lower() == ".csv" and place.is_file()
    return list_paths(place, on_bad) if listed else find_images([place])


def _read(path: Path) -> NDArray[Any]:
    """The array of a file; of a ``.npy`` file a memory map."""
    if not path.is_file():
        raise UserError(f"{path} is no file or folder: check the path")
    if path.suffix.lower() == ".npz":
        with open_npz(path) as content:
            return read_array(content, find_inputs(path, content.files))
    try:
        # Not numpy.load, which does not close a file that it cannot read.
        return np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # a damaged file can raise nearly anything
        raise UserError(f"cannot read {path}: {reason(error)}; write a plain array with numpy.save") from error
