"""Data: readers of original files, folders and arrays; who is labelled; what each step draws.

``load_corpus`` reads a :class:`Corpus`, ``draw_split`` chooses the labelled items, :class:`Pool` puts the items on the
device and :class:`Stream` says which of them each step draws.
"""

from normatch.data.dataset import UNKNOWN, Corpus, Dataset
from normatch.data.download import get
from normatch.data.folder import find_images
from normatch.data.holdout import hold_out
from normatch.data.load import data_root, load_corpus
from normatch.data.pool import Pool
from normatch.data.reading import Reading
from normatch.data.source import Archive, Source, sources
from normatch.data.split import Split, draw_split
from normatch.data.stream import Stream
from normatch.images import Channels, decode, decode_all

__all__ = [
    "UNKNOWN",
    "Archive",
    "Channels",
    "Corpus",
    "Dataset",
    "Pool",
    "Reading",
    "Source",
    "Split",
    "Stream",
    "data_root",
    "decode",
    "decode_all",
    "draw_split",
    "find_images",
    "get",
    "hold_out",
    "load_corpus",
    "sources",
]
