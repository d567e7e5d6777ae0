"""Image files as uint8 arrays of one size: decoded on all cores, cached on disk, compared for duplicates.

Nothing here imports torch, so that the decoding processes start quickly.
"""

from normatch.data.images.cache import Cache, cache_folder
from normatch.data.images.decode import SIZES, SUFFIXES, BadImages, Channels, resize_all
from normatch.data.images.facts import FACTS, describe_dark, facts_of
from normatch.data.images.many import (
    Decoded,
    DecodingProgress,
    OnBad,
    common_side,
    decode_all,
    decode_batches,
    silent,
)

__all__ = [
    "FACTS",
    "SIZES",
    "SUFFIXES",
    "BadImages",
    "Cache",
    "Channels",
    "Decoded",
    "DecodingProgress",
    "OnBad",
    "cache_folder",
    "common_side",
    "decode_all",
    "decode_batches",
    "describe_dark",
    "facts_of",
    "resize_all",
    "silent",
]
