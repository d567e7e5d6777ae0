"""One module per format: each adds a :class:`~normatch.data.source.Source` for every data set that it reads."""
