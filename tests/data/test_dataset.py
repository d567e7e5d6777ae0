"""What a data set refuses, wherever its samples come from; its digest; rows that are read when they are asked for."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from normatch.data import Corpus, Dataset, Pool, digest
from normatch.data import dataset as module
from normatch.data.dataset import Selected, pieces
from normatch.errors import UserError
from tests.data.original_formats import random_bytes


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


@pytest.mark.parametrize("classes", [("cat", "eel", "dog"), ("cat", "dog")])
def test_training_and_test_samples_have_the_same_classes(classes: tuple[str, ...]) -> None:
    """Class 1 would be predicted under another name."""
    vectors, labels = np.zeros((4, 2), np.float32), np.arange(4) % 2
    with pytest.raises(UserError, match="'pets' has other classes to test on than to train on"):
        Corpus("pets", Dataset(vectors, labels, ("cat", "dog", "eel")), Dataset(vectors, labels, classes))


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


def test_labels_of_label_files_are_not_part_of_the_digest() -> None:
    corpus = Corpus("pets", some_files(labels=(0, -1)))
    unknown = corpus.train.labels == -1
    train = replace(corpus.train, labels=np.where(unknown, 1, corpus.train.labels))
    added = dict.fromkeys(np.flatnonzero(unknown).tolist(), corpus.train.classes[1])
    assert digest(replace(corpus, train=train, added_labels=added)) == digest(corpus)
    assert digest(replace(corpus, train=train)) != digest(corpus)


def test_data_that_moved_keep_their_digest() -> None:
    def corpus(folder: str) -> Corpus:
        files = np.array(["cat/0.png", f"{folder}/1.png"], object)
        return Corpus("pets", Dataset(np.zeros((2, 4, 4, 1), np.uint8), np.arange(2), ("cat", "dog"), files))

    assert digest(corpus("/old")) == digest(corpus("/new/place"))


IMAGES = random_bytes(9, 2, 3, 1)
ROWS = st.lists(st.integers(0, 8), max_size=12).map(lambda rows: np.array(rows, np.int64))


@given(ROWS, st.slices(12), st.data())
def test_it_reads_what_indexing_copies(rows: NDArray[np.int64], part: slice, data: st.DataObject) -> None:
    found, copied = Selected.of(IMAGES).at(rows), IMAGES[rows]
    for name in ("shape", "ndim", "dtype", "nbytes"):
        assert getattr(found, name) == getattr(copied, name)
    assert len(found) == len(copied)
    np.testing.assert_array_equal(found, copied)
    np.testing.assert_array_equal(found[part], copied[part])
    if len(rows):
        row = data.draw(st.integers(0, len(rows) - 1))
        np.testing.assert_array_equal(found[row], copied[row])
        np.testing.assert_array_equal(found.at(np.array([row, 0])), copied[[row, 0]])
    batches = [batch.permute(0, 2, 3, 1).numpy() for batch in found.split(2)]
    np.testing.assert_array_equal(np.concatenate([copied[:0], *batches]), copied)


@given(st.integers(0, 40), st.integers(1, 200))
def test_pieces_are_all_rows_once(n: int, size: int) -> None:
    images = random_bytes(n, 2, 3, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PIECE", size)
        rows = [row for piece in pieces(images) for row in range(n)[piece]]
        assert rows == list(range(n))
        assert all(images[piece].nbytes <= max(size, 6) for piece in pieces(images))


def test_a_pool_is_filled_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = Dataset(IMAGES, np.arange(9) % 2, ("a", "b"))
    whole = Pool(dataset).inputs
    monkeypatch.setattr(module, "PIECE", 12)
    assert torch.equal(Pool(dataset).inputs, whole)
    assert torch.equal(Pool(dataset.view(np.array([8, 1]))).inputs, whole[[8, 1]])
    assert len(Pool(dataset.view(np.zeros(0, np.int64)))) == 0


def test_a_view_has_the_samples_labels_and_files_at_its_positions() -> None:
    files = np.array([f"{i}.png" for i in range(4)], object)
    data = Dataset(random_bytes(4, 5, 5, 1), np.array([0, 1, -1, 0]), ("a", "b"), files)
    view = data.view(np.array([3, 1]))
    np.testing.assert_array_equal(view.inputs, data.inputs[[3, 1]])
    assert view.labels.tolist() == [0, 1]
    assert view.files is not None
    assert view.files.tolist() == ["3.png", "1.png"]
