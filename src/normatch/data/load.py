"""A corpus by what the user typed: the name of a data set, or the path of a folder, a CSV file or an ``.npz``."""

import difflib
import os
from dataclasses import replace
from pathlib import Path

from normatch.data.arrays import read_arrays
from normatch.data.dataset import Corpus, Dataset
from normatch.data.decode import OnBad, resize_all
from normatch.data.files import MissingFiles
from normatch.data.folder import read_folder
from normatch.data.manifest import read_manifest
from normatch.data.source import sources
from normatch.errors import UserError

__all__ = ["data_root", "load_corpus"]


def data_root() -> Path:
    """Where data sets are kept: ``$NORMATCH_DATA``, or ``~/.cache/normatch``."""
    return Path(os.environ.get("NORMATCH_DATA") or "~/.cache/normatch").expanduser()


def load_corpus(
    data: str, root: Path | None = None, *, image_size: int | None = None, on_bad: OnBad = "stop"
) -> Corpus:
    """Read ``data``: a name that ``normatch list datasets`` shows, or a path.

    The files of a named data set are looked for in ``root/name``, then in ``root`` (default: :func:`data_root`).
    ``image_size`` makes all images squares of that side. ``on_bad`` is for the files of a folder or a CSV file.
    """
    if image_size is not None and image_size < 1:
        raise UserError(f"image_size is {image_size}: give the side of the images in pixels, such as 32")
    if data in sources:
        return _resized(_read_named(data, (root or data_root()).expanduser()), image_size)
    path = Path(data).expanduser()
    if path.is_dir():
        return read_folder(path, image_size=image_size, on_bad=on_bad)
    if not path.exists():
        close = difflib.get_close_matches(data, sources.names(), n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise UserError(
            f"data is {data!r}: no such folder or file, and no data set of that name "
            f"(there are {', '.join(sources.names())}){hint}"
        )
    if path.suffix.lower() == ".csv":
        return read_manifest(path, image_size=image_size, on_bad=on_bad)
    if path.suffix.lower() == ".npz":
        return _resized(read_arrays(path), image_size)
    raise UserError(f"data is {data!r}: give a folder of images, a .csv file or an .npz file")


def _read_named(name: str, root: Path) -> Corpus:
    source = sources.get(name)
    missing: list[MissingFiles] = []
    for where in (root / name, root):
        try:
            return source.read(where)
        except MissingFiles as error:
            missing.append(error)
    # Where some of the files are, the others belong.
    for incomplete in missing:
        if incomplete.partial:
            raise incomplete
    raise UserError(missing[0].message(f"{missing[0].where} and in {root}"))


def _resized(corpus: Corpus, size: int | None) -> Corpus:
    if size is None:
        return corpus
    if not corpus.train.is_images:
        raise UserError(f"image_size is {size}, but {corpus.name} holds feature vectors: leave it out")

    def resized(dataset: Dataset) -> Dataset:
        return replace(dataset, inputs=resize_all(dataset.inputs, size))

    return replace(corpus, train=resized(corpus.train), test=corpus.test and resized(corpus.test))
