"""A folder of images: a folder for each class, and one for those whose class is not known."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from normatch.data.dataset import UNKNOWN, Corpus, Dataset
from normatch.data.ignored import leads_to, other_files
from normatch.data.reading import DEFAULT, Reading
from normatch.errors import UserError
from normatch.images import SIZES, SUFFIXES, Channels, OnBad, decode_all

__all__ = [
    "UNLABELLED",
    "Listing",
    "Listings",
    "find_images",
    "list_corpus",
    "list_folder",
    "list_unlabelled",
    "read_listings",
]

UNLABELLED = ("unlabeled", "unlabelled")
PARTS = ("train", "test")


@dataclass(frozen=True)
class Listing:
    """Image files and the name of each one's class, None where it is not known."""

    paths: tuple[Path, ...]
    names: tuple[str | None, ...]

    def __add__(self, other: "Listing") -> "Listing":
        return Listing(self.paths + other.paths, self.names + other.names)


@dataclass(frozen=True)
class Listings:
    """The image files of a corpus, before any is read."""

    name: str
    root: Path
    """The data's folder: files are called by their paths in it."""
    train: Listing
    test: Listing | None = None

    @property
    def everything(self) -> Listing:
        return self.train + self.test if self.test else self.train

    @property
    def files(self) -> NDArray[np.object_]:
        """What each file is called, training files first; one outside the data's folder by its path as it was given."""
        # A manifest may give whole paths, and the folder may be called by another now than when the run began.
        given, whole = (os.path.join(root, "") for root in (self.root, os.path.abspath(self.root)))
        return np.array([str(path).removeprefix(given).removeprefix(whole) for path in self.everything.paths], object)

    def with_unlabelled(self, where: Path) -> "Listings":
        """With the images at any depth of another folder, none of which has a label."""
        more = list_unlabelled(where)
        here = self.everything
        known = {os.path.abspath(path): name for path, name in zip(here.paths, here.names, strict=True)}
        for path in more.paths:
            if os.path.abspath(path) in known:
                label = known[os.path.abspath(path)]
                raise UserError(
                    f"unlabelled is {str(where)!r}, but {path} is in {self.name} already, "
                    f"{f'as {label!r}' if label else 'unlabelled'}: give a folder of other images"
                )
        return replace(self, train=self.train + more)


def list_corpus(where: Path) -> Listings:
    """``DIR/<class>/`` are labelled, ``DIR/unlabeled/`` not; or ``DIR/train`` and ``DIR/test`` are such folders."""
    train_folder, test_folder = where / "train", where / "test"
    if not _has_folders(train_folder):
        # A folder "train" without folders in it is a class of railway pictures.
        return Listings(str(where), where, list_folder(where))
    train = list_folder(train_folder) + _unlabelled(where)
    return Listings(str(where), where, train, list_folder(test_folder) if test_folder.is_dir() else None)


def list_folder(where: Path) -> Listing:
    """The images of one folder: its class folders by name, then those without a label."""
    loose = _images(where)
    if loose:
        raise UserError(
            f"{loose[0]} lies in no class folder: move it to {where / '<class>'} or, without a label, to "
            f"{where / UNLABELLED[0]}"
        )
    paths: list[Path] = []
    names: list[str] = []
    for folder in _folders(where):
        if not _is_unlabelled(folder):
            images = _images(folder)
            if folder.name.lower() in PARTS and folder.name not in PARTS and _folders(folder):
                raise UserError(f"{folder} has folders in it: if it is no class, call it {folder.name.lower()!r}")
            if not images or _folders(folder):
                # Rather than to take a folder of folders, such as "validation", for a class.
                has = "folders in it" if _folders(folder) else f"no images{_instead(folder)}"
                raise UserError(
                    f"class folder {folder} has {has}: the images of a class lie directly in its folder "
                    f"({', '.join(sorted(SUFFIXES))})"
                )
            paths += images
            names += [folder.name] * len(images)
    listing = Listing(tuple(paths), tuple(names)) + _unlabelled(where)
    if not listing.paths:
        raise UserError(
            f"no images in {where}: put them in a folder for each class, such as {where / 'cat' / '1.png'} "
            f"({', '.join(sorted(SUFFIXES))})"
        )
    return listing


def find_images(places: Iterable[Path]) -> list[Path]:
    """Image files as they are named, and all images at any depth of the folders among ``places``."""
    found: list[Path] = []
    for place in places:
        if place.is_dir():
            images = _images(place, deep=True)
            if not images:
                raise UserError(f"no images in {place}{_instead(place)}: it has none of {', '.join(sorted(SUFFIXES))}")
            found += images
        elif place.is_file():
            found.append(place)
        else:
            raise UserError(f"no such file or folder: {place}")
    return found


def list_unlabelled(where: Path) -> Listing:
    """All images at any depth of a folder, without labels."""
    if not where.is_dir():
        raise UserError(f"unlabelled is {str(where)!r}: no such folder; give a folder of images")
    images = find_images([where])
    return Listing(tuple(images), (None,) * len(images))


def read_listings(
    listings: Listings,
    *,
    image_size: int | None = None,
    largest: int = SIZES[-1],
    channels: Channels | None = None,
    on_bad: OnBad = "stop",
    reading: Reading = DEFAULT,
) -> Corpus:
    """Decode listed images, all to one size. The classes are those of the training images, sorted by name."""
    name, train, test = listings.name, listings.train, listings.test
    classes = tuple(sorted({label for label in train.names if label is not None}))
    if not classes:
        raise UserError(f"{name} has no labelled image: label a few of each class")
    unknown = sorted({label for label in test.names if label is not None} - set(classes)) if test else []
    if unknown:
        raise UserError(f"{name}: class {unknown[0]!r} has test images but no training images: add some or remove it")
    everything = listings.everything
    decoded = decode_all(
        everything.paths,
        size=image_size,
        channels=channels,
        largest=largest,
        on_bad=on_bad,
        cache=reading.open_cache(),
        progress=reading.progress,
    )
    numbers = {label: i for i, label in enumerate(classes)}
    labels = np.array([numbers.get(label or "", UNKNOWN) for label in everything.names], np.int64)[decoded.kept]
    files = listings.files[decoded.kept]
    training = int(np.searchsorted(decoded.kept, len(train.paths)))
    parts = [
        Dataset(decoded.images[part], labels[part], classes, files[part])
        for part in (slice(training), slice(training, None))
    ]
    return Corpus(name, parts[0], parts[1] if len(parts[1]) else None, skipped=decoded.bad, facts=decoded.facts)


def _unlabelled(where: Path) -> Listing:
    # At any depth: there is no class that a folder could name by mistake.
    images = [image for folder in _folders(where) if _is_unlabelled(folder) for image in _images(folder, deep=True)]
    return Listing(tuple(images), (None,) * len(images))


def _is_unlabelled(folder: Path) -> bool:
    # In any case: nobody who writes "Unlabeled" has a class of that name.
    return folder.name.lower() in UNLABELLED


def _instead(where: Path) -> str:
    """What is in a folder where there are no images, such as a telephone's ``.heic`` files."""
    said = other_files([where])
    return said and f" ({said})"


def _folders(where: Path) -> Sequence[Path]:
    with os.scandir(where) as found:
        names = sorted(e.name for e in found if not e.name.startswith(".") and leads_to(e.is_dir))
    return [where / name for name in names]


def _has_folders(where: Path) -> bool:
    return where.is_dir() and bool(_folders(where))


def _images(where: Path, *, deep: bool = False) -> list[Path]:
    """Images in order of their paths, part by part. With scandir, which asks the disk once for a hundred files."""
    names: list[tuple[str, ...]] = []
    folders: list[tuple[str, ...]] = [()]
    while folders:
        parts = folders.pop()
        with os.scandir(os.path.join(where, *parts)) as found:
            for entry in found:
                # Names with a leading dot are not the user's pictures but the file system's notes about them.
                if entry.name.startswith("."):
                    continue
                if os.path.splitext(entry.name)[1].lower() in SUFFIXES and leads_to(entry.is_file):
                    names.append((*parts, entry.name))
                elif deep and entry.is_dir(follow_symlinks=False):
                    folders.append((*parts, entry.name))
    return [where.joinpath(*parts) for parts in sorted(names)]
