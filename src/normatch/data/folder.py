"""A folder of images: one subfolder per class, and one for images whose class is not known."""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from normatch.data.dataset import UNKNOWN, Corpus, Dataset
from normatch.data.images import DEFAULT, SIZES, SUFFIXES, Channels, OnBad, Reading, decode_all
from normatch.errors import UserError
from normatch.text import counted

__all__ = [
    "UNLABELLED",
    "Ignored",
    "Listing",
    "Listings",
    "find_ignored",
    "find_images",
    "folder_of",
    "list_corpus",
    "list_folder",
    "list_unlabelled",
    "read_listings",
    "say_ignored",
]

UNLABELLED = ("unlabeled", "unlabelled")
FORMATS = ", ".join(sorted(SUFFIXES))

SHOWN = 5
"""Most suffixes of other files that a message names."""

OF_A_RUN = ("config.json", "split.json")
"""The files that every run's folder has from the start: whoever trains inside the data's folder leaves runs there."""


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
        """The name of each file, training files first: its path relative to the data's folder, as a manifest has it, or
        else absolute."""
        # Strip both spellings of the folder: a manifest may list absolute paths, while the folder is given as relative.
        given, whole = (os.path.join(root, "") for root in (self.root, os.path.abspath(self.root)))

        def name(path: Path) -> str:
            stripped = str(path).removeprefix(given).removeprefix(whole)
            # Of the folder "." no path begins with its name.
            inside = stripped != str(path) or (self.root == Path() and not path.is_absolute())
            return stripped if inside else os.path.abspath(path)

        return np.array([name(path) for path in self.everything.paths], object)

    def with_unlabelled(self, where: Path) -> "Listings":
        """These listings plus all images, at any depth, of the folder ``where``, as unlabelled training images."""
        more, here = list_unlabelled(where), self.everything
        known = {os.path.abspath(path): name for path, name in zip(here.paths, here.names, strict=True)}
        twice = next((path for path in more.paths if os.path.abspath(path) in known), None)
        if twice is not None:
            label = known[os.path.abspath(twice)]
            raise UserError(
                f"unlabelled is {str(where)!r}, but {twice} is in {self.name} already, "
                f"{f'as {label!r}' if label else 'unlabelled'}: give a folder of other images"
            )
        return replace(self, train=self.train + more)

    def outline(self) -> Corpus:
        """The corpus without its images: labels, classes and files, known before any image is read.

        The classes are those of the training images, sorted by name.
        """
        classes = tuple(sorted({label for label in self.train.names if label is not None}))
        if not classes:
            raise UserError(f"{self.name} has no labelled image: label a few of each class")
        numbers = {label: i for i, label in enumerate(classes)}
        unknown = sorted({label for label in self.everything.names if label is not None} - set(classes))
        if unknown:
            raise UserError(
                f"{self.name}: class {unknown[0]!r} has test images but no training images: add some or remove it"
            )
        labels = np.array([numbers.get(label or "", UNKNOWN) for label in self.everything.names], np.int64)
        files, training = self.files, len(self.train.paths)
        train, test = (
            Dataset(np.zeros((len(labels[part]), 0), np.float32), labels[part], classes, files[part])
            for part in (slice(training), slice(training, None))
        )
        return Corpus(self.name, train, test if len(test) else None)


def folder_of(data: str) -> Path:
    """The folder to which the names of files in the user's own data are relative: itself, or that of the manifest."""
    where = Path(data).expanduser()
    return where if where.is_dir() else where.parent


def list_corpus(where: Path) -> Listings:
    """List a folder: images in ``DIR/<class>/`` are labelled, those in ``DIR/unlabeled/`` are not; alternatively
    ``DIR/train`` and ``DIR/test`` are such folders."""
    parts = {name.lower(): where / name for name in _inside(where).folders}
    train, test = parts.get("train"), parts.get("test")
    if train is None or not _inside(train).folders:
        # A folder "train" without subfolders is a class named "train" (railway pictures).
        return Listings(str(where), where, list_folder(where))
    return Listings(str(where), where, list_folder(train) + _unlabelled(where), list_folder(test) if test else None)


def list_folder(where: Path) -> Listing:
    """The images of one folder: its class folders by name, then those without a label."""
    inside = _inside(where)
    if inside.images:
        raise UserError(
            f"{where / inside.images[0]} lies in no class folder: move it to {where / '<class>'} or, without a label, "
            f"to {where / UNLABELLED[0]}"
        )
    paths: list[Path] = []
    names: list[str] = []
    for name in inside.folders:
        if name.lower() in UNLABELLED:
            continue
        folder = _inside(where / name)
        if not folder.images and _holds_runs(where / name):
            # Training inside the data's folder leaves "runs" there, which must not spoil the data for the next use.
            continue
        if folder.folders or not folder.images:
            raise UserError(_diagnosis(where / name, folder.folders))
        paths += [where / name / image for image in folder.images]
        names += [name] * len(folder.images)
    listing = Listing(tuple(paths), tuple(names)) + _unlabelled(where)
    if not listing.paths:
        example = where / "cat" / "1.png"
        raise UserError(f"no images in {where}: put them in a folder for each class, such as {example} ({FORMATS})")
    return listing


def _diagnosis(folder: Path, subfolders: Sequence[str]) -> str:
    """What is wrong with a folder that is no class folder."""
    if subfolders:
        return (
            f"{folder} has subfolders: move its pictures directly into {folder} or, if it is no class, sort all "
            f"pictures into {folder.parent / 'train' / '<class>'} and {folder.parent / 'test' / '<class>'}"
        )
    if others := _other_files(folder):
        return f"{folder} has no pictures that can be read, only {others}: convert them to {FORMATS}"
    return f"{folder} has no pictures: put those of the class there, or remove it"


def find_images(places: Iterable[Path]) -> list[Path]:
    """The files among ``places`` as they are, and all images at any depth of the folders among them."""
    found: list[Path] = []
    for place in places:
        if place.is_dir():
            images = _deep_images(place)
            if not images:
                only = f", only {others}" if (others := _other_files(place)) else ""
                raise UserError(f"no images in {place}{only}: give a folder of {FORMATS} files")
            found += images
        elif place.is_file():
            found.append(place)
        else:
            raise UserError(f"no such file or folder: {place}")
    return found


def list_unlabelled(where: Path) -> Listing:
    """All images at any depth of a folder, without labels."""
    if not where.is_dir():
        raise UserError(
            f"unlabelled is {str(where)!r}: no such folder; give a folder of images with --unlabeled, its new place if "
            "it has moved"
        )
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
    """Decode listed images, all to one size."""
    outline = listings.outline()
    decoded = decode_all(
        listings.everything.paths,
        size=image_size,
        channels=channels,
        largest=largest,
        on_bad=on_bad,
        cache=reading.open_cache(),
        progress=reading.progress,
    )
    training = int(np.searchsorted(decoded.kept, len(outline.train)))
    train = replace(outline.train.subset(decoded.kept[:training]), inputs=decoded.images[:training])
    test = None
    if outline.test is not None and training < len(decoded.kept):
        kept = decoded.kept[training:] - len(outline.train)
        test = replace(outline.test.subset(kept), inputs=decoded.images[training:])
    return Corpus(outline.name, train, test, skipped=decoded.bad, facts=decoded.facts)


@dataclass(frozen=True)
class Ignored:
    """The files that are not read, except for hidden files and those of runs."""

    kinds: dict[str, int]
    """Number of other files by suffix, the most frequent first."""
    dangling: list[str]
    """Symbolic links whose target does not exist, or which form a loop."""
    elsewhere: list[str]
    """Pictures in folders that are not searched, such as one next to ``train`` and ``test``; linked folders there."""


def find_ignored(folders: Sequence[Path], listed: Sequence[Path]) -> Ignored:
    """The files at any depth of ``folders`` that are not among ``listed``."""
    known = {os.path.abspath(path) for path in listed}
    searched = {Path(folder) for folder in {os.path.dirname(path) for path in known}}
    searched |= {parent for folder in searched for parent in folder.parents}
    kinds: Counter[str] = Counter()
    dangling: list[str] = []
    elsewhere: list[str] = []
    waiting, seen = list(folders), set()
    while waiting:
        folder = waiting.pop()
        if os.path.abspath(folder) in seen or _is_run(folder):
            continue
        seen.add(os.path.abspath(folder))
        try:
            inside = _inside(folder)
        except PermissionError:  # it cannot be part of the data: listing the data would have failed
            continue
        for path in (folder / name for name in inside.folders):
            # Follow only links that the listing followed: others could lead anywhere.
            if path.is_symlink() and path.absolute() not in searched:
                elsewhere.append(str(path))
            else:
                waiting.append(path)
        images = (folder / name for name in inside.images)
        elsewhere += [str(path) for path in images if os.path.abspath(path) not in known]
        dangling += [str(folder / name) for name in inside.dangling]
        kinds.update(os.path.splitext(name)[1].lower() for name in inside.others)
    return Ignored(dict(kinds.most_common()), sorted(dangling), sorted(elsewhere))


def say_ignored(ignored: Ignored) -> list[str]:
    """A line for each kind of ignored file that there is.

    >>> say_ignored(Ignored({".heic": 10, "": 2}, ["a/old.png"], ["a/more", "a/next", "b/1.png"]))[:2]
    ['12 files of other kinds are ignored: .heic 10, no suffix 2', 'ignored, a broken link: a/old.png']
    """
    lines = []
    if n := sum(ignored.kinds.values()):
        files = f"{n:,} files of other kinds are" if n > 1 else "1 file of another kind is"
        kinds = [f"{suffix or 'no suffix'} {count:,}" for suffix, count in ignored.kinds.items()]
        lines.append(f"{files} ignored: {_shown(kinds)}")
    for why, found in {
        "a broken link": ignored.dangling,
        "outside the folders that are read": ignored.elsewhere,
    }.items():
        more = f" and {len(found) - 1:,} more" if len(found) > 1 else ""
        lines += [f"ignored, {why}: {found[0]}{more}"] if found else []
    return lines


def _other_files(folder: Path) -> str:
    """The number of files of each other kind in a folder, such as a phone's: "12 .heic files"; "" if it has none."""
    kinds = find_ignored([folder], ()).kinds
    return _shown([counted(n, f"{suffix} file".strip()) for suffix, n in kinds.items()])


def _shown(kinds: list[str]) -> str:
    return ", ".join(kinds[:SHOWN]) + (f" and {len(kinds) - SHOWN:,} more kinds" if len(kinds) > SHOWN else "")


def _is_run(folder: Path | str) -> bool:
    return all(os.path.isfile(os.path.join(folder, name)) for name in OF_A_RUN)


def _holds_runs(folder: Path) -> bool:
    """Whether ``folder`` is the folder of a run, or has one in it at any depth."""
    return any(_is_run(place) for place, _, _ in os.walk(folder))


def _unlabelled(where: Path) -> Listing:
    # At any depth: without labels, subfolders cannot be mistaken for classes. Case is ignored: "Unlabeled" is hardly
    # the name of a class.
    folders = [name for name in _inside(where).folders if name.lower() in UNLABELLED]
    images = [image for name in folders for image in _deep_images(where / name)]
    return Listing(tuple(images), (None,) * len(images))


def _deep_images(where: Path) -> list[Path]:
    """All images at any depth, sorted by path components; links to folders are not followed."""
    found: list[tuple[str, ...]] = []
    for place, folders, names in os.walk(where):
        folders[:] = [name for name in folders if not name.startswith(".")]
        parts = Path(place).relative_to(where).parts
        found += [(*parts, name) for name in names if _is_image(name) and os.path.isfile(os.path.join(place, name))]
    return [where.joinpath(*parts) for parts in sorted(found)]


def _is_image(name: str) -> bool:
    # Not hidden files: some systems keep metadata under image names with a leading dot.
    return os.path.splitext(name)[1].lower() in SUFFIXES and not name.startswith(".")


@dataclass(frozen=True)
class _Inside:
    """Names in a folder, sorted: those that begin with a dot, and pipes and the like, are left out."""

    folders: list[str]
    images: list[str]
    others: list[str]
    """Files that are no images."""
    dangling: list[str]


def _inside(where: Path) -> _Inside:
    found = _Inside([], [], [], [])
    with os.scandir(where) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.name.startswith("."):
                continue
            link = entry.is_symlink()  # else no file needs a system call
            if os.path.isdir(entry.path) if link else entry.is_dir():
                found.folders.append(entry.name)
            elif os.path.isfile(entry.path) if link else entry.is_file():
                (found.images if _is_image(entry.name) else found.others).append(entry.name)
            elif link:
                found.dangling.append(entry.name)
    return found
