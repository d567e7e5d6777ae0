"""Which samples are labelled and held out: by class and seed, none twice, the same on every machine."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from normatch.data.dataset import UNKNOWN, Corpus, Dataset, Selected
from normatch.data.split import (
    Split,
    draw_split,
    hold_out,
    how_to_test,
    skewed,
    stratified,
)
from normatch.errors import UserError


def corpus(labels: list[int], classes: int, folds: tuple[list[int], ...] = ()) -> Corpus:
    inputs = np.zeros((len(labels), 2), np.float32)
    names = tuple(f"class {i}" for i in range(classes))
    return Corpus(
        "toy",
        Dataset(inputs, np.array(labels, np.int64), names),
        folds=tuple(np.array(fold, np.int64) for fold in folds),
    )


BALANCED = corpus([i % 4 for i in range(80)] + [UNKNOWN] * 20, 4)


def test_golden_values() -> None:
    split = draw_split(BALANCED, 8, seed=0)
    assert split.labelled.tolist() == [2, 4, 13, 21, 39, 48, 50, 55]
    split = draw_split(BALANCED, 8, seed=1, validation=0.1)
    assert split.labelled.tolist() == [2, 4, 29, 38, 39, 43, 45, 52]
    assert split.validation.tolist() == [13, 14, 30, 35, 49, 63, 68, 76]
    # Labels of label files leave what is set aside as it is.
    labels = np.where(BALANCED.train.labels == UNKNOWN, 0, BALANCED.train.labels)
    more = replace(
        BALANCED, train=replace(BALANCED.train, labels=labels), added_labels=dict.fromkeys(range(80, 100), "")
    )
    assert draw_split(more, 8, seed=1, validation=0.1).validation.tolist() == split.validation.tolist()


@given(
    sizes=st.lists(st.integers(6, 30), min_size=2, max_size=6),
    unknown=st.integers(0, 20),
    each=st.integers(1, 3),
    seed=st.integers(0, 2**32),
    validation=st.floats(0, 0.5),
    include=st.booleans(),
)
def test_every_split_is_a_split(
    sizes: list[int], unknown: int, each: int, seed: int, validation: float, include: bool
) -> None:
    labels = [c for c, size in enumerate(sizes) for _ in range(size)] + [UNKNOWN] * unknown
    data = corpus(labels, len(sizes))
    split = draw_split(data, each * len(sizes), seed, validation=validation, include_labelled=include)
    labelled, unlabelled, held = (set(part.tolist()) for part in (split.labelled, split.unlabelled, split.validation))
    truth = data.train.labels
    assert np.bincount(truth[split.labelled], minlength=len(sizes)).tolist() == [each] * len(sizes)
    assert not labelled & held
    assert not unlabelled & held
    assert labelled <= unlabelled if include else not labelled & unlabelled
    assert labelled | unlabelled | held == set(range(len(labels)))
    for c, size in enumerate(sizes):
        assert abs((truth[split.validation] == c).sum() - validation * size) < 1
    for part in (split.labelled, split.unlabelled, split.validation):
        assert part.tolist() == sorted(set(part.tolist()))
    again = draw_split(data, each * len(sizes), seed, validation=validation, include_labelled=include)
    assert again.to_json() == split.to_json()
    stored = json.loads(json.dumps(split.to_json()))
    assert set(stored["unlabelled"]["without"]) <= labelled | held, "a short list, however many are unlabelled"
    back = Split.from_json(stored)
    for name in ("labelled", "unlabelled", "validation"):
        np.testing.assert_array_equal(getattr(back, name), getattr(split, name))
    assert back.labelled.dtype == np.int64
    assert not labelled & set(split.others.tolist())


def test_folds() -> None:
    data = corpus([0, 1, 0, 1, 0, 1, UNKNOWN], 2, folds=([3, 0], [4, 5, 1], [0, 2]))
    assert draw_split(data, None, 0, fold=0).labelled.tolist() == [0, 3]
    split = draw_split(data, None, 9, fold=1, include_labelled=False)
    assert split.labelled.tolist() == [1, 4, 5]
    assert split.unlabelled.tolist() == [0, 2, 3, 6]
    with pytest.raises(UserError, match="fold 2 has no label for class 'class 1'"):
        draw_split(data, None, 0, fold=2)
    with pytest.raises(UserError, match=r"fold is 3: data set 'toy' has folds 0 to 2"):
        draw_split(data, None, 0, fold=3)
    with pytest.raises(UserError, match="has no predefined folds"):
        draw_split(BALANCED, None, 0, fold=0)


def test_named_items() -> None:
    data = corpus([0, 1, 0, 1, 0, 1, UNKNOWN], 2)

    def draw(*items: int, labels: int | None = None, validation: float = 0.0) -> Split:
        return draw_split(data, labels, 0, named=np.array(items), validation=validation)

    split = draw(1, 4, 5, labels=3)
    assert split.labelled.tolist() == [1, 4, 5]
    assert split.unlabelled.tolist() == list(range(7))
    aside = draw(0, 1, 2, 3, 4, 5, validation=0.34)
    assert sorted([*aside.labelled, *aside.validation]) == list(range(6))
    with pytest.raises(UserError, match="labels is 4, but labelled has 2: give labels 2"):
        draw(0, 1, labels=4)
    with pytest.raises(UserError, match="labelled has no label for class 'class 1': use labels of every class"):
        draw(0, 2)
    with pytest.raises(UserError, match="labelled has position 6, which has no label: label it in the data"):
        draw(0, 1, 6)
    with pytest.raises(UserError, match="labelled has position 7: give those from 0 to 6"):
        draw(0, 1, 7)


def test_a_fold_whose_only_sample_of_a_class_is_set_aside() -> None:
    """What counts is which classes are left to train on, not which the fold had."""
    data = corpus([0, 1] * 20, 2)
    (aside,) = (int(at) for at in draw_split(data, None, 0, validation=0.05).validation if at % 2)
    fold = [0, 2, 4, 6, aside]
    data = corpus([0, 1] * 20, 2, folds=(fold,))
    assert draw_split(data, None, 0, fold=0).labelled.tolist() == sorted(fold)
    with pytest.raises(UserError, match="fold 0 has no label for class 'class 1'"):
        draw_split(data, None, 0, fold=0, validation=0.05)
    with pytest.raises(UserError, match="labelled has no label for class 'class 1'"):
        draw_split(data, None, 0, named=np.array(fold), validation=0.05)


@pytest.mark.parametrize(
    ("labels", "validation", "expected"),
    [
        (6, 0.0, "labels is 6: give a multiple of the 4 classes, such as 4"),
        (86, 0.0, "labels is 86: give a multiple of the 4 classes, such as 80"),
        (84, 0.0, "class 'class 0' has 20 labelled samples left to train on, but needs 21: label more, ask"),
        (80, 0.5, "class 'class 0' has 10 labelled samples left to train on, but needs 20"),
    ],
)
def test_errors(labels: int, validation: float, expected: str) -> None:
    with pytest.raises(UserError, match=expected) as caught:
        draw_split(BALANCED, labels, 0, validation=validation)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "counts", "said"),
    [
        ("pets", {"cat": 4, "dog": 5}, "label at least 5 of each class, or put labelled pictures into test/ beside"),
        ("pets.csv", {"cat": 4, "dog": 1}, "label at least 5 of each class, or list labelled pictures as test"),
        ("pets.NPZ", {"cat": 9, "dog": 9}, "train with --test-share 0.2, or add labelled test samples"),
        ("digits", {}, "train with --test-share 0.2"),
    ],
)
def test_how_to_get_a_test_set(data: str, counts: dict[str, int], said: str) -> None:
    assert how_to_test(data, counts).startswith(said)


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
    assert len(chosen) == math.ceil(round(share * len(known), 9))
    for label in set(known.tolist()):
        assert abs((array[chosen] == label).sum() - share * (known == label).sum()) <= 1


def test_of_classes_that_lost_as_much_the_first_give_one_more() -> None:
    labels = np.repeat(np.arange(60), [5, 3] * 30)  # rounding down costs a class half a sample, or less
    assert labels[stratified(labels, 0.1, 0, "test")].tolist() == list(range(0, 48, 2))


def test_held_out_and_other_samples_are_all_samples_once() -> None:
    """And none is copied: of one's own pictures there may be more than the memory holds."""
    images = np.arange(20, dtype=np.uint8).reshape(20, 1, 1, 1)
    held = hold_out(Corpus("toy", Dataset(images, np.arange(20) % 2, ("a", "b")), skipped=("x.png",)), 0.25, 3)
    assert held.test is not None
    assert len(held.test) == 5
    for part in (held.train, held.test):
        assert isinstance(part.inputs, Selected)
        assert part.inputs.array is images
        np.testing.assert_array_equal(part.labels, np.asarray(part.inputs).ravel() % 2)
    together = np.concatenate([held.train.inputs, held.test.inputs]).ravel()
    assert sorted(together.tolist()) == list(range(20))
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


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([12, 12, 12, 12, 3, 3, 3, 3, 3, 3], True),
        ([100, 34], False),  # less than 3 : 1
        ([100, 33], True),
        ([6, 2, 5, 3], False),  # 16 labels of four equal classes are often as uneven
        ([5], False),
        ([], False),
    ],
)
def test_skewed(counts: list[int], expected: bool) -> None:
    assert skewed(counts) is expected
