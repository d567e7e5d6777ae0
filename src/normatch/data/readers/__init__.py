"""One module per data set: each adds a :class:`~normatch.data.source.Source` that reads its original files."""
