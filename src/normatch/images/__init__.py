"""Image files as arrays of bytes of one size: decoded by all cores, kept in a cache, compared by what they show.

Nothing here imports torch: the processes that decode start in a moment.
"""

from normatch.images.cache import Cache, cache_folder
from normatch.images.decode import SUFFIXES, Channels, Unreadable, decode, resize_all
from normatch.images.facts import FACTS, facts_of
from normatch.images.many import SIZES, Decoded, OnBad, Progress, common_side, decode_all, decode_batches, silent

__all__ = [
    "FACTS",
    "SIZES",
    "SUFFIXES",
    "Cache",
    "Channels",
    "Decoded",
    "OnBad",
    "Progress",
    "Unreadable",
    "cache_folder",
    "common_side",
    "decode",
    "decode_all",
    "decode_batches",
    "facts_of",
    "resize_all",
    "silent",
]
