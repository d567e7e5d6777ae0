"""Files that lie in a folder of pictures and are no part of the data: who misses a picture finds it here."""

import errno
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from normatch.images import SUFFIXES

__all__ = ["Ignored", "find_ignored", "leads_to", "other_files", "other_kinds"]

SHOWN = 5


@dataclass(frozen=True)
class Ignored:
    """What was passed over, hidden files apart."""

    kinds: dict[str, int]
    """How many files there are of each kind that is not read, by suffix, the most frequent first."""
    dangling: list[str]
    """Links to what is not there, and links to themselves."""
    elsewhere: list[str]
    """Pictures where none is looked for, such as in a folder beside ``train`` and ``test``; linked folders there."""


def find_ignored(folders: Sequence[Path], listed: Sequence[Path]) -> Ignored:
    """Look at any depth of ``folders`` for files that are not ``listed``."""
    known = {_identity(path) for path in listed}
    looked_into = {Path(folder) for folder in {os.path.dirname(path) for path in listed}}
    looked_into |= {parent for folder in looked_into for parent in folder.parents}
    kinds: Counter[str] = Counter()
    dangling: list[Path] = []
    elsewhere: list[Path] = []
    seen: set[tuple[int, int] | None] = set()
    waiting = list(folders)
    while waiting:
        folder = waiting.pop()
        # One of the folders may lie in another, and a link may lead back.
        if _identity(folder) in seen:
            continue
        seen.add(_identity(folder))
        for entry in _entries(folder):
            if leads_to(entry.is_dir):
                # No further than the listing goes: a link can lead to all there is.
                followed = not entry.is_symlink() or folder / entry.name in looked_into
                (waiting if followed else elsewhere).append(folder / entry.name)
            elif not leads_to(entry.is_file):
                dangling += [folder / entry.name] if entry.is_symlink() else []
            elif (suffix := os.path.splitext(entry.name)[1].lower()) not in SUFFIXES:
                kinds[suffix] += 1
            elif _identity(entry.path) not in known:
                elsewhere.append(folder / entry.name)
    return Ignored(dict(kinds.most_common()), *(sorted(map(str, places)) for places in (dangling, elsewhere)))


def other_files(places: Iterable[Path]) -> str:
    """What of the folders among ``places`` is of kinds that are not read, in words; nothing where there is none."""
    return other_kinds(find_ignored([place for place in places if place.is_dir()], ()).kinds)


def other_kinds(kinds: dict[str, int]) -> str:
    """How many files are of kinds that are not read, and of which; nothing where there are none.

    >>> other_kinds({".heic": 10, "": 2}), other_kinds({".txt": 1})
    ('12 files of other kinds are ignored: .heic 10, no suffix 2', '1 file of another kind is ignored: .txt 1')
    """
    if not kinds:
        return ""
    n = sum(kinds.values())
    files = f"{n:,} files of other kinds are" if n > 1 else "1 file of another kind is"
    named = ", ".join(f"{suffix or 'no suffix'} {count:,}" for suffix, count in list(kinds.items())[:SHOWN])
    more = f" and {len(kinds) - SHOWN:,} more kinds" if len(kinds) > SHOWN else ""
    return f"{files} ignored: {named}{more}"


def leads_to(kind: Callable[[], bool]) -> bool:
    """What ``is_dir`` or ``is_file`` of an entry says; no where it is a link that leads to itself, which raises."""
    try:
        return kind()
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return False


def _identity(path: Path | str) -> tuple[int, int] | None:
    """The same for one file by whatever links it is reached; None where it is not there, as a manifest's may be."""
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
        # It is no part of the data, or listing that would have failed.
        return []
