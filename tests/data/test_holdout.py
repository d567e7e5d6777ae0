"""Test items drawn from data that brings none: each class with its share, the same on every machine."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from normatch.data.dataset import UNKNOWN, Corpus, Dataset
from normatch.data.holdout import hold_out, how_to_test, stratified
from normatch.data.load import load_corpus
from normatch.data.split import draw_split
from normatch.errors import UserError


def test_digits_by_seed() -> None:
    digits = load_corpus("digits")
    first, same, other = (hold_out(digits, 0.2, seed) for seed in (0, 0, 1))
    for corpus in (first, other):
        assert corpus.test is not None
        assert (len(corpus.train), len(corpus.test)) == (1_437, 360)
        assert set(np.bincount(corpus.test.labels).tolist()) <= {35, 36, 37}
    assert np.array_equal(first.train.inputs, same.train.inputs)
    assert not np.array_equal(first.train.labels, other.train.labels)


@pytest.mark.parametrize(
    ("data", "counts", "said"),
    [
        ("pets", {"cat": 4, "dog": 5}, "label 1 more of 'cat', or put labelled pictures into test/ beside train/"),
        ("pets.csv", {"cat": 4, "dog": 1}, "label 1 more of 'cat' and 4 more of 'dog', or list labelled pictures as"),
        (
            "pets.NPZ",
            dict.fromkeys("abc", 3),
            "label at least 5 of each class (3 classes have fewer), or add",
        ),
        (
            "pets",
            {"cat": 9, "dog": 9},
            "train with --test-share 0.2, or put labelled pictures into test/",
        ),
        ("digits", {}, "train with --test-share 0.2"),
    ],
)
def test_how_to_get_a_test_set(data: str, counts: dict[str, int], said: str) -> None:
    assert how_to_test(data, counts).startswith(said)


def test_golden_values() -> None:
    labels = np.array([i % 4 for i in range(80)] + [UNKNOWN] * 20)
    assert stratified(labels, 0.1, 0, "test").tolist() == [36, 37, 38, 39, 50, 60, 71, 73]


@given(
    labels=st.lists(st.integers(-1, 5), min_size=1, max_size=80),
    share=st.floats(0, 1),
    seed=st.integers(0, 1000),
)
def test_shares(labels: list[int], share: float, seed: int) -> None:
    array = np.array(labels, np.int64)
    chosen = stratified(array, share, seed, "test")
    assert chosen.tolist() == sorted(set(chosen.tolist()))
    assert (array[chosen] != UNKNOWN).all()
    known = array[array != UNKNOWN]
    assert abs(len(chosen) - share * len(known)) < 1
    for label in set(known.tolist()):
        assert abs((array[chosen] == label).sum() - share * (known == label).sum()) <= 1


def test_of_classes_that_lost_as_much_the_first_give_one_more() -> None:
    labels = np.repeat(np.arange(60), [5, 3] * 30)  # rounding down costs a class half an item, or less
    assert labels[stratified(labels, 0.1, 0, "test")].tolist() == list(range(0, 48, 2))


def test_parts_are_all_items_once() -> None:
    inputs = np.arange(40, dtype=np.float32).reshape(20, 2)
    corpus = Corpus("toy", Dataset(inputs, np.arange(20) % 2, ("a", "b")), skipped=("x.png",))
    held = hold_out(corpus, 0.25, 3)
    assert held.test is not None
    assert len(held.test) == 5
    together = np.concatenate([held.train.inputs, held.test.inputs])
    assert sorted(together[:, 0].tolist()) == inputs[:, 0].tolist()
    assert held.skipped == ("x.png",)
    with pytest.raises(UserError, match="brings its own test set"):
        hold_out(held, 0.25, 3)


def test_a_test_set_without_labels_is_replaced() -> None:
    dataset = Dataset(np.zeros((20, 2), np.float32), np.arange(20) % 2, ("a", "b"))
    unknown = Dataset(np.ones((7, 2), np.float32), np.full(7, UNKNOWN), ("a", "b"))
    held = hold_out(Corpus("toy", dataset, unknown), 0.25, 3)
    assert held.test is not None
    assert np.asarray(held.test.inputs).tolist() == [[0, 0]] * 5


def test_folds_keep_their_items_less_those_held_out() -> None:
    inputs = np.arange(40, dtype=np.float32).reshape(20, 2)
    fold = np.arange(19, 5, -1)
    corpus = Corpus("toy", Dataset(inputs, np.arange(20) % 2, ("a", "b")), folds=(np.arange(4), fold))
    held = hold_out(corpus, 0.3, seed=0)
    assert held.test is not None
    expected = {tuple(row) for row in inputs[fold].tolist()} - {
        tuple(row) for row in np.asarray(held.test.inputs).tolist()
    }
    labelled = draw_split(held, None, 0, fold=1).labelled
    assert 0 < len(labelled) < len(fold)
    assert {tuple(row) for row in held.train.inputs[labelled].tolist()} == expected
