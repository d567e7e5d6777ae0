"""Options for reading image files that do not affect the result."""

from normatch.data.images import DEFAULT, Reading

__all__ = ["DEFAULT", "Reading"]
