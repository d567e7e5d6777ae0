"""Fashion-MNIST: 60,000 training and 10,000 test images of clothes, 28×28, grey (Xiao et al., 2017)."""

from functools import partial

from normatch.data.readers.mnist import idx_archives, read_idx_corpus
from normatch.data.source import Source, sources

__all__: list[str] = []

# The files hold numbers only; the names are those of the authors' table.
CLASSES = (
    "t-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"
)  # fmt: skip

ARCHIVES = idx_archives(
    "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion",
    [
        ("8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26_421_880),
        ("25c81989df183df01b3e8a0aad5dffbe", 29_515),
        ("bef4ecab320f06d8554ea6380940ec79", 4_422_102),
        ("bb300cfdad3c16e7a12a480ee83cd310", 5_148),
    ],
)

sources.add(
    "fashion-mnist",
    Source(
        name="fashion-mnist",
        summary="60,000 + 10,000 grey pictures of clothes in 10 classes",
        classes=10,
        shape=(1, 28, 28),
        read=partial(read_idx_corpus, "fashion-mnist", CLASSES, ARCHIVES),
        home="https://github.com/zalandoresearch/fashion-mnist",
        archives=ARCHIVES,
    ),
)
