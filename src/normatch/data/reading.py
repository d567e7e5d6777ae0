"""How image files are read, which changes nothing of what they become."""

from dataclasses import dataclass

from normatch.images import Cache, Progress, silent

__all__ = ["DEFAULT", "Reading"]


@dataclass(frozen=True)
class Reading:
    """Whether decoded images are kept for the next time, and the function that is called as decoding proceeds."""

    cache: bool = True
    progress: Progress = silent

    def open_cache(self) -> Cache | None:
        return Cache() if self.cache else None


DEFAULT = Reading()
