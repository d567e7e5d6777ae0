"""CIFAR-10: 50,000 training and 10,000 test images of 10 classes, 32×32 (Krizhevsky, 2009)."""

from functools import partial

from normatch.data.archive import Layout
from normatch.data.formats.cifar import Batch, CifarForm, read_cifar
from normatch.data.source import Archive, Source, sources

__all__: list[str] = []

SITE = "https://www.cs.toronto.edu/~kriz"
TRAIN = tuple(Batch(f"data_batch_{i}", 10_000) for i in range(1, 6))
TEST = Batch("test_batch", 10_000)

FORM = CifarForm(
    name="cifar10",
    classes=10,
    train=TRAIN,
    test=TEST,
    python=Layout(
        Archive(
            f"{SITE}/cifar-10-python.tar.gz", "cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a", 170_498_071
        ),
        folder="cifar-10-batches-py",
        members=("batches.meta", *(batch.name for batch in (*TRAIN, TEST))),
    ),
    python_names="batches.meta",
    names_key="label_names",
    labels_key="labels",
    binary=Layout(
        Archive(
            f"{SITE}/cifar-10-binary.tar.gz", "cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530", 170_052_171
        ),
        folder="cifar-10-batches-bin",
        members=("batches.meta.txt", *(f"{batch.name}.bin" for batch in (*TRAIN, TEST))),
    ),
    binary_names="batches.meta.txt",
    label_bytes=1,
)

sources.add(
    "cifar10",
    Source(
        name="cifar10",
        summary="50,000 + 10,000 colour photographs of 10 kinds of things",
        classes=10,
        shape=(3, 32, 32),
        read=partial(read_cifar, FORM),
        home=f"{SITE}/cifar.html",
        archives=(FORM.python.archive,),
    ),
)
