"""One file a family of backbones; a file adds what it defines to the registry."""

__all__: list[str] = []
