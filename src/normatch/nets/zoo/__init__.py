"""One module per family of backbones; each adds what it defines to the registry."""

__all__: list[str] = []
