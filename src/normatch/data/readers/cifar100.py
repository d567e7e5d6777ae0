"""CIFAR-100: 50,000 training and 10,000 test images of 100 fine classes, 32×32 (Krizhevsky, 2009)."""

from functools import partial

from normatch.data.readers.cifar10 import SITE, Cifar, read_cifar
from normatch.data.source import Archive, Layout, Source, sources

__all__: list[str] = []

FORM = Cifar(
    name="cifar100",
    counts={"train": 50_000, "test": 10_000},
    python=Layout(
        Archive(
            f"{SITE}/cifar-100-python.tar.gz",
            "cifar-100-python.tar.gz",
            "eb9058c3a382ffc7106e4002c42a8d85",
            169_001_437,
        ),
        folder="cifar-100-python",
        members=("meta", "train", "test"),
    ),
    names_key="fine_label_names",
    labels_key="fine_labels",
    binary=Layout(
        Archive(
            f"{SITE}/cifar-100-binary.tar.gz",
            "cifar-100-binary.tar.gz",
            "03b5dce01913d631647c71ecec9e9cb8",
            168_513_733,
        ),
        folder="cifar-100-binary",
        members=("fine_label_names.txt", "train.bin", "test.bin"),
    ),
    label_bytes=2,
)

sources.add(
    "cifar100",
    Source(
        name="cifar100",
        summary="50,000 + 10,000 colour photographs in 100 classes",
        classes=100,
        shape=(3, 32, 32),
        read=partial(read_cifar, FORM),
        home=f"{SITE}/cifar.html",
        archives=(FORM.python.archive,),
    ),
)
