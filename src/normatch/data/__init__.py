"""Data: readers of original files, folders and arrays; which samples are labelled; which samples each step draws.

``load_corpus`` reads a :class:`Corpus`, ``draw_split`` chooses the labelled samples, :class:`Pool` puts all on the
device (:class:`HostPool` leaves them in host memory) and :class:`Stream` determines which of them each step draws.
"""

from normatch.data.dataset import UNKNOWN, Corpus, Dataset, digest
from normatch.data.download import get
from normatch.data.folder import find_images
from normatch.data.images import OnBad, Reading
from normatch.data.load import data_root, load_corpus
from normatch.data.pool import HostPool, Pool, Stream
from normatch.data.samples import Files, Rows, Samples, find_samples
from normatch.data.source import Archive, Source, find, sources
from normatch.data.split import Split, draw_split, hold_out

__all__ = [
    "UNKNOWN",
    "Archive",
    "Corpus",
    "Dataset",
    "Files",
    "HostPool",
    "OnBad",
    "Pool",
    "Reading",
    "Rows",
    "Samples",
    "Source",
    "Split",
    "Stream",
    "data_root",
    "digest",
    "draw_split",
    "find",
    "find_images",
    "find_samples",
    "get",
    "hold_out",
    "load_corpus",
    "sources",
]
