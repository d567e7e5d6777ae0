"""Named data sets: how to read their original files, and where these are published."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from normatch.data.dataset import Corpus
from normatch.data.reading import DEFAULT, Reading
from normatch.registry import Registry

__all__ = ["Archive", "Reader", "Source", "sources"]


class Reader(Protocol):
    """Reads the files in a folder, packed or unpacked; ``reading`` matters only to readers of image files."""

    def __call__(self, where: Path, reading: Reading = DEFAULT, /) -> Corpus: ...


@dataclass(frozen=True)
class Archive:
    """A file as its site publishes it. ``md5`` is the published checksum, None if there is none.

    ``size`` is only for progress and for the message that a file is truncated; the checksum decides.
    """

    url: str
    name: str
    md5: str | None
    size: int | None = None


@dataclass(frozen=True)
class Source:
    """A named data set."""

    name: str
    summary: str
    classes: int
    shape: tuple[int, int, int]
    """(C, H, W) of one image."""
    read: Reader
    home: str
    archives: tuple[Archive, ...] = ()
    """What ``normatch data get`` downloads."""
    embedded: bool = False
    """Comes with an installed package: there is nothing to download."""


sources: Registry[Source] = Registry("data set", package="normatch.data.readers")
