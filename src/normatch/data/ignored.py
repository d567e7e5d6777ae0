"""Files in the data's folders that are not part of the data, listed so that missing pictures can be found."""

import errno
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from normatch.data.images import SUFFIXES
from normatch.text import counted

__all__ = ["Ignored", "find_ignored", "holds_runs", "kinds_in", "leads_to", "say_ignored"]

SHOWN = 5

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
