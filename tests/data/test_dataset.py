"""What a data set refuses, wherever its items come from."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from normatch.data import Corpus, Dataset, digest
from normatch.errors import UserError


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (("cat", ""), "classes has no name for class 1: give it one"),
        (("cat", "cat"), "classes has 'cat' twice: give each class a different name"),
    ],
)
def test_every_class_has_a_name_of_its_own(classes: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Dataset(np.zeros((4, 2), np.float32), np.arange(4) % 2, classes)


@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_feature_vectors_are_finite(odd: float) -> None:
    vectors = np.zeros((4, 2), np.float32)
    vectors[2, 1] = odd
    with pytest.raises(UserError, match=r"feature vectors have values that are not finite .+: fix or remove them"):
        Dataset(vectors, np.arange(4) % 2, ("cat", "dog"))


@pytest.mark.parametrize(
    ("classes", "said"),
    [
        (("cat", "eel", "dog"), "class 1 of data set 'pets' is 'dog' among the items to train on, but 'eel' among"),
        (("cat", "dog"), "class 2 of data set 'pets' is 'eel' among the items to train on, but None among"),
    ],
)
def test_training_and_test_items_have_the_same_classes(classes: tuple[str, ...], said: str) -> None:
    """Class 1 would be predicted under another name."""
    vectors, labels = np.zeros((4, 2), np.float32), np.arange(4) % 2
    with pytest.raises(UserError, match=said):
        Corpus("pets", Dataset(vectors, labels, ("cat", "dog", "eel")), Dataset(vectors, labels, classes))


def test_training_and_test_items_have_the_same_shape() -> None:
    train, test = (Dataset(np.zeros((2, 8, side, 1), np.uint8), np.arange(2), ("cat", "dog")) for side in (8, 4))
    with pytest.raises(UserError, match=r"training inputs have shape \(1, 8, 8\), test inputs \(1, 8, 4\)"):
        Corpus("pets", train, test)


def some_files(labels: tuple[int, int] = (0, 1), classes: str = "ab", names: str = "01", side: int = 4) -> Dataset:
    return Dataset(
        np.zeros((2, side, 16 // side, 1), np.uint8), np.array(labels), tuple(classes), np.array(list(names), object)
    )


@pytest.mark.parametrize("other", [{"labels": (0, -1)}, {"names": "02"}, {"side": 2}, {"classes": "ac"}])
def test_whatever_changes_in_the_data_changes_its_digest(other: dict[str, Any]) -> None:
    corpus = Corpus("pets", some_files(), some_files())
    before = digest(corpus)
    assert digest(Corpus("pets", some_files(), some_files())) == before
    if set(other).isdisjoint({"side", "classes"}):  # these are the same in both
        assert digest(replace(corpus, train=some_files(**other))) != before
        assert digest(replace(corpus, test=some_files(**other))) != before
    assert digest(Corpus("pets", some_files(**other), some_files(**other))) != before
    assert digest(Corpus("pets", some_files())) != before
    assert corpus.test is not None
    for part in (corpus.train, corpus.test):
        part.inputs[1, 3, 3] += 1  # type: ignore[index]
        assert digest(corpus) != before
        before = digest(corpus)


def test_data_that_moved_keep_their_digest() -> None:
    def corpus(folder: str) -> Corpus:
        files = np.array(["cat/0.png", f"{folder}/1.png"], object)
        return Corpus("pets", Dataset(np.zeros((2, 4, 4, 1), np.uint8), np.arange(2), ("cat", "dog"), files))

    assert digest(corpus("/old")) == digest(corpus("/new/place"))
