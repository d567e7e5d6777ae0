"""Load a corpus from what the user gave: the name of a data set, or the path of a folder, a CSV file or an ``.npz``."""

import difflib
import os
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np

from normatch.data.arrays import read_arrays
from normatch.data.dataset import UNKNOWN, Corpus, Dataset
from normatch.data.folder import Listings, find_ignored, find_images, list_corpus, list_unlabelled
from normatch.data.images import DEFAULT, SIZES, OnBad, Reading, decode_all, resize_all
from normatch.data.manifest import list_manifest
from normatch.data.source import MissingFiles, sources
from normatch.errors import UserError
from normatch.registry import FROM_A_PLUG_IN

__all__ = ["data_root", "find_listings", "load_corpus", "passed_over"]


def data_root() -> Path:
    """Where data sets are kept: ``$NORMATCH_DATA``, or ``~/.cache/normatch``."""
    return Path(os.environ.get("NORMATCH_DATA") or "~/.cache/normatch").expanduser()


def load_corpus(
    data: str,
    root: Path | None = None,
    *,
    unlabelled: Path | None = None,
    image_size: int | None = None,
    largest: int = SIZES[-1],
    on_bad: OnBad = "stop",
    reading: Reading = DEFAULT,
) -> Corpus:
    """Read ``data``: a name that ``normatch list datasets`` shows, or a path.

    The files of a named data set are looked for in the folder ``root/name`` or, if there is none, in ``root`` (default:
    :func:`data_root`). ``unlabelled`` is a folder of more images, all without labels. ``image_size`` makes all images
    squares of that side; without it, image files of many sizes become squares of at most ``largest``. ``on_bad`` and
    ``reading`` are for image files.
    """
    found: Corpus | Listings | None = find_listings(data, on_bad, unlabelled)
    if found is None:
        found = _read_named(data, root) if data in sources else read_arrays(Path(data).expanduser())
        if isinstance(found, Listings) and unlabelled is not None:
            found = found.with_unlabelled(unlabelled)
    if isinstance(found, Listings):
        return found.read(image_size=image_size, largest=largest, on_bad=on_bad, reading=reading)
    if not found.train.is_images and (image_size or unlabelled):
        given = f"image_size is {image_size}" if image_size else f"unlabelled is {str(unlabelled)!r}"
        raise UserError(f"{given}, but {found.name} holds feature vectors: leave it out")
    corpus = _resized(found, image_size) if image_size else found
    return _extended(corpus, unlabelled, on_bad, reading) if unlabelled else corpus


def find_listings(data: str, on_bad: OnBad = "stop", unlabelled: Path | None = None) -> Listings | None:
    """The image files of a folder or a CSV file, and those of the folder ``unlabelled``; None if ``data`` is a named
    data set or an ``.npz``."""
    if data in sources:
        return None
    path, kind = Path(data).expanduser(), Path(data).suffix.lower()
    if data.strip() and not path.exists():
        where = f"data is {data!r}: no such folder or file"
        if path.name != data:  # a path, perhaps the absolute one stored with a run
            raise UserError(f"{where}; check the path or, if it has moved, give its new place with --data")
        close = difflib.get_close_matches(data, sources.names(), n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise UserError(
            f"{where}, and no data set of that name (there are {', '.join(sources.names())}); {FROM_A_PLUG_IN}{hint}"
        )
    # Not an empty path, most likely a variable of the shell that is not set; not a pipe, which might never end.
    if not data.strip() or not (path.is_dir() or (path.is_file() and kind in (".csv", ".npz"))):
        raise UserError(f"data is {data!r}: give a folder of images, a .csv file or an .npz file")
    if path.is_file() and kind == ".npz":
        return None
    listings = list_corpus(path) if path.is_dir() else list_manifest(path, on_bad)
    return listings.with_unlabelled(unlabelled) if unlabelled else listings


def passed_over(listings: Listings | None, unlabelled: Path | None = None) -> list[str]:
    """The files in the listed folder and in ``unlabelled`` that are not read: not among the ``listings``, which include
    the latter.

    If the data is not a folder but a manifest or a named data set, nothing of it counts as ignored.
    """
    folders = [Path(listings.name)] if listings and Path(listings.name).is_dir() else []
    folders += [unlabelled.expanduser()] if unlabelled else []
    return find_ignored(folders, listings.paths if listings else find_images(folders))


def _read_named(name: str, root: Path | None) -> Corpus | Listings:
    source, elsewhere = sources.get(name), root is not None
    root = (root or data_root()).expanduser()
    try:
        return source.read(root / name if (root / name).is_dir() else root)
    except MissingFiles as error:
        flags = f" --root {shlex.quote(str(root))}" if elsewhere else ""
        how = f"run `normatch data get {name}{flags}`, or" if source.archives else f"see {source.home}, and"
        raise UserError(f"{name}: {error}: {how} put what is missing there") from error


def _resized(corpus: Corpus, size: int) -> Corpus:
    def resized(part: Dataset) -> Dataset:
        return replace(part, inputs=resize_all(np.asarray(part.inputs), size))

    test = None if corpus.test is None else resized(corpus.test)
    return replace(corpus, train=resized(corpus.train), test=test)


def _extended(corpus: Corpus, where: Path, on_bad: OnBad, reading: Reading) -> Corpus:
    """The corpus plus the images of a folder, decoded to its size and channels, as unlabelled training samples."""
    train = corpus.train
    channels, height, width = train.shape
    decoded = decode_all(
        list_unlabelled(where), size=(height, width), channels=channels, on_bad=on_bad, reading=reading
    )
    more = replace(
        train,
        inputs=np.concatenate([train.inputs, decoded.images]),
        labels=np.concatenate([train.labels, np.full(len(decoded.images), UNKNOWN)]),
    )
    return replace(corpus, train=more, skipped=tuple(decoded.bad.values()))
