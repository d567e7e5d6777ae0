"""Whether labels are spread evenly: by ratio, and by more than chance."""

import numpy as np
import pytest

from normatch.data.balance import describe_skew, label_counts, skewed, too_few
from normatch.data.dataset import UNKNOWN, Dataset


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


def test_random_labels_of_balanced_classes_are_rarely_skewed() -> None:
    rng = np.random.default_rng(0)
    drawn = [np.bincount(rng.integers(10, size=60), minlength=10).tolist() for _ in range(500)]
    uneven = [counts for counts in drawn if max(counts) >= 3 * min(counts)]
    assert len(uneven) > 250, "their ratio alone says nothing"
    assert sum(map(skewed, drawn)) < 40


def test_remarks_need_a_reason() -> None:
    assert describe_skew({"cat": 9, "dog": 4}) is None
    assert describe_skew({"cat": 9}) is None
    assert too_few({"cat": 9, "dog": 5}) is None
    assert too_few({"cat": 9, "dog": 1}) == "dog has 1 labelled item: too few to hold some out for testing"


def test_unlabelled_items_are_not_counted() -> None:
    labels = np.array([2, 0, UNKNOWN, 2])
    assert label_counts(Dataset(np.zeros((4, 1), np.float32), labels, ("a", "b", "c"))) == {"a": 1, "c": 2}
