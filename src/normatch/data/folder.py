"""A folder of images: one subfolder per class, and one for images whose class is not known."""

import errno
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from normatch.data.dataset import SETS, UNKNOWN, Corpus, Dataset
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
PARTS = ("train", "test")

KINDS = ", ".join(sorted(SUFFIXES))

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
    train_folder, test_folder = where / "train", where / "test"
    if not _has_folders(train_folder):
        # A folder "train" without subfolders is a class named "train" (railway pictures).
        return Listings(str(where), where, list_folder(where))
    train = list_folder(train_folder) + _unlabelled(where)
    if test_folder.is_dir():
        return Listings(str(where), where, train, list_folder(test_folder))
    misnamed = [folder for folder in _folders(where) if folder.name.lower() == test_folder.name]
    if misnamed:
        raise UserError(f"{misnamed[0]} is not read: call it {test_folder.name!r}, or move it elsewhere")
    return Listings(str(where), where, train)


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
    wrong: list[Path] = []
    for folder in itertools.filterfalse(_is_unlabelled, _folders(where)):
        images = _images(folder)
        if not images and holds_runs(folder):
            # Training inside the data's folder leaves "runs" there, which must not spoil the data for the next use.
            continue
        if _folders(folder):
            _must_be_a_class(folder, where)
        wrong += [folder] if _folders(folder) or not images else []
        paths += images
        names += [folder.name] * len(images)
    if wrong:
        raise UserError(_diagnosis(wrong))
    listing = Listing(tuple(paths), tuple(names)) + _unlabelled(where)
    if not listing.paths:
        raise UserError(
            f"no images in {where}: put them in a folder for each class, such as {where / 'cat' / '1.png'} ({KINDS})"
        )
    return listing


def _must_be_a_class(folder: Path, where: Path) -> None:
    """Raise UserError if ``folder``, which has folders in it, is by its name a set of pictures, as "validation" is."""
    if folder.name.lower() in PARTS and folder.name not in PARTS:
        raise UserError(f"{folder} has folders in it: if it is no class, call it {folder.name.lower()!r}")
    if folder.name.lower() in SETS and where.name not in PARTS:
        named = "" if folder.name == "test" else f", and call this one {where / 'test'} if it is to test on"
        raise UserError(
            f"{folder} has folders in it: if it is no class, move the class folders beside it into "
            f"{where / 'train'}{named}"
        )


def _diagnosis(wrong: Sequence[Path]) -> str:
    """What is wrong with the first of some folders that are no class folders, and which others there are."""
    first, *others = wrong
    if _folders(first):
        what = f"{first} has subfolders: move its pictures directly into {first}"
    elif kinds := kinds_in(first):
        what = f"{first} has no pictures that can be read, only {kinds}: convert them to {KINDS}"
    else:
        what = f"{first} has no pictures: put those of the class there, or remove it"
    shown = [str(folder) for folder in others[:SHOWN]]
    shown += [f"{len(others) - SHOWN:,} more"] if len(others) > SHOWN else []
    return f"{what}; {', '.join(shown)} cannot be read either" if shown else what


def find_images(places: Iterable[Path]) -> list[Path]:
    """The files among ``places`` as they are, and all images at any depth of the folders among them."""
    found: list[Path] = []
    for place in places:
        if place.is_dir():
            images = _images(place, deep=True)
            if not images:
                others = kinds_in(place)
                raise UserError(f"no images in {place}{others and f', only {others}'}: give a folder of {KINDS} files")
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


def _unlabelled(where: Path) -> Listing:
    # At any depth: without labels, subfolders cannot be mistaken for classes.
    images = [image for folder in _folders(where) if _is_unlabelled(folder) for image in _images(folder, deep=True)]
    return Listing(tuple(images), (None,) * len(images))


def _is_unlabelled(folder: Path) -> bool:
    # Case is ignored: "Unlabeled" is hardly the name of a class.
    return folder.name.lower() in UNLABELLED


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


OF_A_RUN = ("config.json", "split.json")
"""The files that every run's folder has from the start: whoever trains inside the data's folder leaves runs there."""


@dataclass(frozen=True)
class Ignored:
    """The files that are not read, except for hidden files and those of runs."""

    kinds: dict[str, int]
    """Number of files of each other kind by suffix, the most frequent first."""
    dangling: list[str]
    """Symbolic links whose target does not exist, or which form a loop."""
    elsewhere: list[str]
    """Pictures in folders that are not searched, such as one next to ``train`` and ``test``; linked folders there."""


def find_ignored(folders: Sequence[Path], listed: Sequence[Path]) -> Ignored:
    """The files at any depth of ``folders`` that are not among ``listed``."""
    known = {_identity(path) for path in listed}
    searched = {Path(folder) for folder in {os.path.dirname(path) for path in listed}}
    searched |= {parent for folder in searched for parent in folder.parents}
    kinds: Counter[str] = Counter()
    dangling: list[Path] = []
    elsewhere: list[Path] = []
    seen: set[tuple[int, int] | None] = set()
    waiting = list(folders)
    while waiting:
        folder = waiting.pop()
        # One of the folders may contain another, and a link may lead back.
        if _identity(folder) in seen:
            continue
        seen.add(_identity(folder))
        if _is_run(folder):
            continue
        for entry in _entries(folder):
            if leads_to(entry.is_dir):
                # Follow only links that the listing followed: others could lead anywhere.
                followed = not entry.is_symlink() or folder / entry.name in searched
                (waiting if followed else elsewhere).append(folder / entry.name)
            elif not leads_to(entry.is_file):
                dangling += [folder / entry.name] if entry.is_symlink() else []
            elif (suffix := os.path.splitext(entry.name)[1].lower()) not in SUFFIXES:
                kinds[suffix] += 1
            elif _identity(entry.path) not in known:
                elsewhere.append(folder / entry.name)
    return Ignored(dict(kinds.most_common()), *(sorted(map(str, places)) for places in (dangling, elsewhere)))


def say_ignored(ignored: Ignored) -> list[str]:
    """A line for each kind of ignored file that there is.

    >>> say_ignored(Ignored({".txt": 1}, ["a/old.png"], ["a/more", "a/next", "b/1.png"]))[1:]
    ['ignored, a broken link: a/old.png', 'ignored, outside the folders that are read: a/more and 2 more']
    """
    places = {"a broken link": ignored.dangling, "outside the folders that are read": ignored.elsewhere}
    named = [
        f"ignored, {why}: {found[0]}" + (f" and {len(found) - 1:,} more" if len(found) > 1 else "")
        for why, found in places.items()
        if found
    ]
    return [_other_kinds(ignored.kinds), *named] if ignored.kinds else named


def kinds_in(folder: Path) -> str:
    """The number of files of each other kind in a folder, such as a phone's: "12 .heic files"; "" if it has none."""
    kinds = find_ignored([folder], ()).kinds
    named = [counted(n, f"{suffix} file".strip()) for suffix, n in list(kinds.items())[:SHOWN]]
    return ", ".join(named) + (f" and {len(kinds) - SHOWN:,} more kinds" if len(kinds) > SHOWN else "")


def _other_kinds(kinds: dict[str, int]) -> str:
    """A sentence on the number of files of each other kind.

    >>> _other_kinds({".heic": 10, "": 2}), _other_kinds({".txt": 1})
    ('12 files of other kinds are ignored: .heic 10, no suffix 2', '1 file of another kind is ignored: .txt 1')
    """
    n = sum(kinds.values())
    files = f"{n:,} files of other kinds are" if n > 1 else "1 file of another kind is"
    named = ", ".join(f"{suffix or 'no suffix'} {count:,}" for suffix, count in list(kinds.items())[:SHOWN])
    more = f" and {len(kinds) - SHOWN:,} more kinds" if len(kinds) > SHOWN else ""
    return f"{files} ignored: {named}{more}"


def holds_runs(folder: Path) -> bool:
    """Whether ``folder`` is the folder of a run, or has one in it at any depth; links are followed one level deep."""
    if _is_run(folder):
        return True
    inside = [entry for entry in _entries(folder) if leads_to(entry.is_dir)]
    return any((_is_run if entry.is_symlink() else holds_runs)(folder / entry.name) for entry in inside)


def leads_to(kind: Callable[[], bool]) -> bool:
    """The result of an entry's ``is_dir`` or ``is_file``, but False for a link loop, for which they raise."""
    try:
        return kind()
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return False


def _is_run(folder: Path) -> bool:
    return all((folder / name).is_file() for name in OF_A_RUN)


def _identity(path: Path | str) -> tuple[int, int] | None:
    """(device, inode), the same for a file through whatever link it is reached; None if there is no such file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _entries(folder: Path) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as found:
            return [entry for entry in found if not entry.name.startswith(".")]
    except PermissionError:
        # It cannot be part of the data: listing the data would have failed.
        return []
