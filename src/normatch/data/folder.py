"""A folder of images: one subfolder per class, and one for images whose class is not known."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from normatch.data.dataset import SETS, UNKNOWN, Corpus, Dataset
from normatch.data.ignored import holds_runs, leads_to, other_files
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

SHOWN = 3
"""Most folders that an error names besides the first."""


@dataclass(frozen=True)
class Listing:
    """Image files and the class name of each, None where it is not known."""

    paths: tuple[Path, ...]
    names: tuple[str | None, ...]

    def __add__(self, other: "Listing") -> "Listing":
        return Listing(self.paths + other.paths, self.names + other.names)


@dataclass(frozen=True)
class Listings:
    """The image files of a corpus, before any is read."""

    name: str
    root: Path
    """The data's folder, to which the names of files are relative."""
    train: Listing
    test: Listing | None = None

    @property
    def everything(self) -> Listing:
        return self.train + self.test if self.test else self.train

    @property
    def files(self) -> NDArray[np.object_]:
        """The name of each file, training files first: its path, relative to the data's folder if it is inside."""
        # Strip both spellings of the folder: a manifest may list absolute paths, while the folder is given as relative.
        given, whole = (os.path.join(root, "") for root in (self.root, os.path.abspath(self.root)))
        return np.array([str(path).removeprefix(given).removeprefix(whole) for path in self.everything.paths], object)

    def with_unlabelled(self, where: Path) -> "Listings":
        """These listings plus all images, at any depth, of the folder ``where``, as unlabelled training images."""
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
    """List a folder: images in ``DIR/<class>/`` are labelled, those in ``DIR/unlabeled/`` are not; alternatively
    ``DIR/train`` and ``DIR/test`` are such folders."""
    train_folder, test_folder = where / "train", where / "test"
    if not _has_folders(train_folder):
        # A folder "train" without subfolders is a class named "train" (railway pictures).
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
    wrong: list[tuple[Path, str]] = []
    for folder in _folders(where):
        if not _is_unlabelled(folder):
            images = _images(folder)
            if not images and holds_runs(folder):
                # Training inside the data's folder leaves "runs" there, which must not spoil the data for the next use.
                continue
            if folder.name.lower() in PARTS and folder.name not in PARTS and _folders(folder):
                raise UserError(f"{folder} has folders in it: if it is no class, call it {folder.name.lower()!r}")
            if folder.name.lower() in SETS and where.name not in PARTS and _folders(folder):
                named = "" if folder.name == "test" else f", and call this one {where / 'test'} if it is to test on"
                raise UserError(
                    f"{folder} has folders in it: if it is no class, move the class folders beside it into "
                    f"{where / 'train'}{named}"
                )
            if not images or _folders(folder):
                # Do not take a folder of folders, such as "validation", for a class.
                wrong.append((folder, "folders in it" if _folders(folder) else f"no images{_others_in(folder)}"))
            paths += images
            names += [folder.name] * len(images)
    if wrong:
        (first, has), *others = wrong
        shown = [str(folder) for folder, _ in others[:SHOWN]]
        shown += [f"{len(others) - SHOWN:,} more"] if len(others) > SHOWN else []
        rest = f"; {', '.join(shown)} cannot be read either" if shown else ""
        raise UserError(
            f"class folder {first} has {has}: the images of a class lie directly in its folder "
            f"({', '.join(sorted(SUFFIXES))}){rest}"
        )
    listing = Listing(tuple(paths), tuple(names)) + _unlabelled(where)
    if not listing.paths:
        raise UserError(
            f"no images in {where}: put them in a folder for each class, such as {where / 'cat' / '1.png'} "
            f"({', '.join(sorted(SUFFIXES))})"
        )
    return listing


def find_images(places: Iterable[Path]) -> list[Path]:
    """The files among ``places`` as they are, and all images at any depth of the folders among them."""
    found: list[Path] = []
    for place in places:
        if place.is_dir():
            images = _images(place, deep=True)
            if not images:
                raise UserError(
                    f"no images in {place}{_others_in(place)}: it has none of {', '.join(sorted(SUFFIXES))}"
                )
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
    # At any depth: without labels, subfolders cannot be mistaken for classes.
    images = [image for folder in _folders(where) if _is_unlabelled(folder) for image in _images(folder, deep=True)]
    return Listing(tuple(images), (None,) * len(images))


def _is_unlabelled(folder: Path) -> bool:
    # Case is ignored: "Unlabeled" is hardly the name of a class.
    return folder.name.lower() in UNLABELLED


def _others_in(where: Path) -> str:
    """A note in parentheses on the files of other kinds in ``where``, such as a phone's ``.heic`` files, or ""."""
    said = other_files([where])
    return said and f" ({said})"


def _folders(where: Path) -> Sequence[Path]:
    with os.scandir(where) as found:
        names = sorted(e.name for e in found if not e.name.startswith(".") and leads_to(e.is_dir))
    return [where / name for name in names]


def _has_folders(where: Path) -> bool:
    return where.is_dir() and bool(_folders(where))


def _images(where: Path, *, deep: bool = False) -> list[Path]:
    """Image files sorted by path components. Uses scandir, which needs no system call per file."""
    names: list[tuple[str, ...]] = []
    folders: list[tuple[str, ...]] = [()]
    while folders:
        parts = folders.pop()
        with os.scandir(os.path.join(where, *parts)) as found:
            for entry in found:
                # Skip hidden files: some systems keep metadata under image names with a leading dot.
                if entry.name.startswith("."):
                    continue
                if os.path.splitext(entry.name)[1].lower() in SUFFIXES and leads_to(entry.is_file):
                    names.append((*parts, entry.name))
                elif deep and entry.is_dir(follow_symlinks=False):
                    folders.append((*parts, entry.name))
    return [where.joinpath(*parts) for parts in sorted(names)]
