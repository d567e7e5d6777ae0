"""MNIST: 60,000 training and 10,000 test images of handwritten digits, 28×28, grey (LeCun et al., 1998)."""

from functools import partial

from normatch.data.formats.idx import idx_archives, read_idx_corpus
from normatch.data.source import Source, sources

__all__: list[str] = []

ARCHIVES = idx_archives(
    # The authors' own site no longer serves the files; this mirror has the originals, md5 for md5.
    "https://ossci-datasets.s3.amazonaws.com/mnist",
    [
        ("f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422),
        ("d53e105ee54ea40749a09fcbcd1e9432", 28_881),
        ("9fb629c4189551a2d022fa330f9573f3", 1_648_877),
        ("ec29112dd5afa0611ce80d1b7f02629c", 4_542),
    ],
)

sources.add(
    "mnist",
    Source(
        name="mnist",
        summary="60,000 + 10,000 grey handwritten digits",
        classes=10,
        shape=(1, 28, 28),
        read=partial(read_idx_corpus, "mnist", tuple(map(str, range(10))), ARCHIVES),
        home="http://yann.lecun.com/exdb/mnist/",
        archives=ARCHIVES,
    ),
)
