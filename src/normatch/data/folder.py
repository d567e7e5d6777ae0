"""A folder of images: one subfolder per class, and one for images whose class is not known."""

import os
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from normatch.data.cache import Form
from normatch.data.dataset import UNKNOWN, Corpus, Dataset
from normatch.data.images import DEFAULT, SIZES, SUFFIXES, OnBad, Reading, decode_all
from normatch.errors import UserError
from normatch.text import counted

__all__ = [
    "UNLABELLED",
    "Listing",
    "Listings",
    "find_ignored",
    "find_images",
    "folder_of",
    "has_classes",
    "list_corpus",
    "list_folder",
    "list_unlabelled",
    "say_ignored",
]

UNLABELLED = ("unlabeled", "unlabelled")
FORMATS = ", ".join(sorted(SUFFIXES))

SHOWN = 5
"""Most suffixes of ignored files that a message names."""

OF_A_RUN = ("config.json", "split.json")
"""The files that every run's folder has from the start: whoever trains inside the data's folder leaves runs there."""


Listing = list[tuple[Path, str | None]]
"""Image files, each with its class name, None where it is not known."""


@dataclass(frozen=True)
class Listings:
    """The image files of a corpus, before any is read."""

    name: str
    root: Path
    """The data's folder, to which the names of files are relative."""
    train: Listing
    test: Listing
    folds: tuple[NDArray[np.int64], ...] = ()
    """Predefined labelled subsets, as positions in ``train``."""
    form: Form | None = None
    """(H, W, C) of the images, if their authors prescribe it."""

    @property
    def paths(self) -> list[Path]:
        """All files, training files first."""
        return [path for path, _ in self.train + self.test]

    @property
    def files(self) -> NDArray[np.object_]:
        """The name of each file: its path relative to the data's folder, as a manifest has it, or else absolute."""
        # Strip both spellings of the folder: a manifest may list absolute paths, while the folder is given as relative.
        relative = "" if self.root == Path() else os.path.join(self.root, "")
        absolute = os.path.join(os.path.abspath(self.root), "")
        return np.array([str(path).removeprefix(relative).removeprefix(absolute) for path in self.paths], object)

    def with_unlabelled(self, where: Path) -> "Listings":
        """These listings plus all other images, at any depth, of the folder ``where``, as unlabelled ones."""
        known = set(map(os.path.abspath, self.paths))
        more = map(os.path.abspath, list_unlabelled(where))
        return replace(self, train=self.train + [(Path(path), None) for path in more if path not in known])

    def outline(self) -> Corpus:
        """The corpus without its images: labels, classes and files, known before any image is read."""
        n = len(self.paths)
        return self._corpus(np.zeros((n, 0), np.float32), np.arange(n))

    def read(
        self,
        *,
        image_size: int | None = None,
        largest: int = SIZES[-1],
        on_bad: OnBad = "stop",
        reading: Reading = DEFAULT,
    ) -> Corpus:
        """Decode the images, all to one size."""
        decoded = decode_all(
            self.paths,
            size=image_size or (self.form[:2] if self.form else None),
            channels=self.form[2] if self.form else None,
            largest=largest,
            on_bad=on_bad,
            reading=reading,
        )
        corpus = self._corpus(decoded.images, decoded.kept)
        return replace(corpus, skipped=tuple(decoded.bad.values()), facts=decoded.facts)

    def _corpus(self, inputs: NDArray[Any], kept: NDArray[np.int64]) -> Corpus:
        """The corpus of the files at the positions ``kept``; its classes are sorted by name."""
        named = [label for _, label in self.train + self.test]
        classes = tuple(sorted({label for label in named if label is not None}))
        numbers: dict[str | None, int] = {None: UNKNOWN} | {label: i for i, label in enumerate(classes)}
        labels = np.array([numbers[label] for label in named], np.int64)[kept]
        files, training = self.files[kept], int(np.searchsorted(kept, len(self.train)))
        train, test = (
            Dataset(inputs[part], labels[part], classes, files[part])
            for part in (slice(training), slice(training, None))
        )
        folds = tuple(np.searchsorted(kept, fold[np.isin(fold, kept)]) for fold in self.folds)
        return Corpus(self.name, train, test if len(test) else None, folds)


def folder_of(data: str) -> Path:
    """The folder to which the names of files in the user's own data are relative: itself, or that of the manifest."""
    where = Path(data).expanduser()
    return where if where.is_dir() else where.parent


def list_corpus(where: Path) -> Listings:
    """List a folder: images in ``DIR/<class>/`` are labelled, those in ``DIR/unlabeled/`` are not; alternatively
    ``DIR/train`` and ``DIR/test`` are such folders."""
    parts = {name.lower(): where / name for name in _inside(where)[0]}
    train, test = parts.get("train"), parts.get("test")
    if train is None or not _inside(train)[0]:
        # A folder "train" without subfolders is a class named "train" (railway pictures).
        return Listings(str(where), where, list_folder(where), [])
    return Listings(str(where), where, list_folder(train) + _unlabelled(where), list_folder(test) if test else [])


def list_folder(where: Path) -> Listing:
    """The images of one folder: its class folders by name, then those without a label."""
    folders, images = _inside(where)
    if images:
        raise UserError(
            f"{where / images[0]} lies in no class folder: move it to {where / '<class>'} or, without a label, "
            f"to {where / UNLABELLED[0]}"
        )
    listing: Listing = []
    for name in folders:
        if name.lower() in UNLABELLED:
            continue
        folder = where / name
        subfolders, images = _inside(folder)
        if not images and any(_is_run(place) for place, _, _ in os.walk(folder)):
            # Training inside the data's folder leaves "runs" there, which must not spoil the data for the next use.
            continue
        if subfolders:
            raise UserError(
                f"{folder} has subfolders: move its pictures directly into {folder} or, if it is no class, sort all "
                f"pictures into {where / 'train' / '<class>'} and {where / 'test' / '<class>'}"
            )
        if not images:
            raise UserError(f"no images in {folder}{_only(folder)}: put there {FORMATS} files, or remove it")
        listing += [(folder / image, name) for image in images]
    listing += _unlabelled(where)
    if not listing:
        example = where / "cat" / "1.png"
        raise UserError(f"no images in {where}: put them in a folder for each class, such as {example} ({FORMATS})")
    return listing


def find_images(places: Iterable[Path]) -> list[Path]:
    """The files among ``places`` as they are, and all images at any depth of the folders among them."""
    found: list[Path] = []
    for place in places:
        if place.is_dir():
            images = _deep_images(place)
            if not images:
                raise UserError(f"no images in {place}{_only(place)}: give a folder of {FORMATS} files")
            found += images
        elif place.is_file():
            found.append(place)
        else:
            raise UserError(f"{place} is no file or folder: check the path")
    return found


def has_classes(where: Path) -> bool:
    """Whether a folder has a class folder, so that its other pictures have no label; else none of them has one."""
    return any(
        name.lower() not in UNLABELLED and any(not _is_run(str(path.parent)) for path in _deep_images(where / name))
        for name in _inside(where)[0]
    )


def list_unlabelled(where: Path) -> list[Path]:
    """All images at any depth of the folder that is given as ``unlabelled``."""
    where = where.expanduser()
    if not where.is_dir():
        raise UserError(
            f"unlabelled is {str(where)!r}: no such folder; give a folder of images with --unlabelled, its new "
            "place if it has moved"
        )
    return find_images([where])


def find_ignored(folders: Iterable[Path], listed: Iterable[Path] = ()) -> list[str]:
    """The files at any depth of ``folders`` that are not among ``listed``, images first; not hidden files nor runs."""
    known = set(map(os.path.abspath, listed))
    found: set[str] = set()
    for folder in folders:
        for place, inside, names in os.walk(folder):
            if _is_run(place):
                inside.clear()
                continue
            inside[:] = [name for name in inside if not name.startswith(".")]
            files = (os.path.join(place, name) for name in names if not name.startswith("."))
            found.update(file for file in files if os.path.abspath(file) not in known)
    return sorted(found, key=lambda file: (not _is_image(os.path.basename(file)), file))


def say_ignored(files: Sequence[str]) -> list[str]:
    """A line about the ignored files, if there are any.

    >>> say_ignored(["old/1.jpg", "cat/1.heic", "cat/2.heic"])
    ['3 files are ignored (.heic 2, .jpg 1), such as old/1.jpg']
    """
    said = f"{counted(len(files), 'file')} {'are' if len(files) > 1 else 'is'} ignored ({_suffixes(files)})"
    return [f"{said}, such as {files[0]}"] if files else []


def _only(folder: Path) -> str:
    """What a folder without images has instead, such as a phone's: ", only .heic 12"."""
    others = find_ignored([folder])
    return f", only {_suffixes(others)}" if others else ""


def _suffixes(files: Collection[str]) -> str:
    counts = Counter(os.path.splitext(file)[1].lower() or "no suffix" for file in files)
    more = [f"{len(counts) - SHOWN:,} more suffixes"] if len(counts) > SHOWN else []
    return ", ".join([f"{suffix} {n:,}" for suffix, n in counts.most_common(SHOWN)] + more)


def _is_run(folder: str) -> bool:
    return all(os.path.isfile(os.path.join(folder, name)) for name in OF_A_RUN)


def _unlabelled(where: Path) -> Listing:
    # At any depth: without labels, subfolders cannot be mistaken for classes. Case is ignored: "Unlabeled" is hardly
    # the name of a class.
    folders = [name for name in _inside(where)[0] if name.lower() in UNLABELLED]
    return [(image, None) for name in folders for image in _deep_images(where / name)]


def _deep_images(where: Path) -> list[Path]:
    """All images at any depth, sorted by path components; links to folders are not followed."""
    found: list[Path] = []
    for place, folders, names in os.walk(where):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths = (Path(place, name) for name in names if _is_image(name))
        found += [path for path in paths if path.is_file()]
    return sorted(found, key=lambda path: path.parts)


def _is_image(name: str) -> bool:
    # Not hidden files: some systems keep metadata under image names with a leading dot.
    return os.path.splitext(name)[1].lower() in SUFFIXES and not name.startswith(".")


def _inside(where: Path) -> tuple[list[str], list[str]]:
    """The names of the folders and of the images in a folder, sorted, without those that begin with a dot."""
    names = sorted(name for name in os.listdir(where) if not name.startswith("."))
    folders = [name for name in names if os.path.isdir(where / name)]
    return folders, [name for name in names if _is_image(name) and os.path.isfile(where / name)]
