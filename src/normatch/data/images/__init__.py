"""Image files as uint8 arrays of one size: decoded in threads, cached on disk, compared for duplicates."""

from normatch.data.images.cache import Cache, cache_folder
from normatch.data.images.decode import SIZES, SUFFIXES, BadImages, Channels
from normatch.data.images.facts import FACTS, describe_dark, facts_of
from normatch.data.images.many import (
    DEFAULT,
    Decoded,
    DecodingProgress,
    OnBad,
    Reading,
    decode_all,
    decode_batches,
    resize_all,
)

__all__ = [
    "DEFAULT",
    "FACTS",
    "SIZES",
    "SUFFIXES",
    "BadImages",
    "Cache",
    "Channels",
    "Decoded",
    "DecodingProgress",
    "OnBad",
    "Reading",
    "cache_folder",
    "decode_all",
    "decode_batches",
    "describe_dark",
    "facts_of",
    "resize_all",
]
