"""Options for reading image files that do not affect the result."""

from dataclasses import dataclass

from normatch.data.images import Cache, DecodingProgress, silent

__all__ = ["DEFAULT", "Reading"]


@dataclass(frozen=True)
class Reading:
    """Whether to cache decoded images, and the function to call as decoding proceeds."""

    cache: bool = True
    progress: DecodingProgress = silent

    def open_cache(self) -> Cache | None:
        return Cache() if self.cache else None


DEFAULT = Reading()
