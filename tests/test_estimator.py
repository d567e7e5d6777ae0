"""The scikit-learn face."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits

from normatch import NorMatchClassifier
from normatch.errors import UserError

DIGITS = load_digits()
IMAGES = (DIGITS.images * 15).astype(np.uint8)
rng = np.random.default_rng(0)
LABELS = np.where(rng.uniform(size=len(DIGITS.target)) < 0.1, DIGITS.target, -1)


def test_images() -> None:
    model = NorMatchClassifier(steps=60, batch=16, ratio=3).fit(IMAGES, LABELS)
    p = model.predict_proba(IMAGES[:50])
    assert p.shape == (50, 10)
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-5)
    np.testing.assert_array_equal(model.predict(IMAGES[:50]), model.classes_[p.argmax(1)])
    assert model.score(IMAGES, DIGITS.target) > 0.7
    known = LABELS != -1
    np.testing.assert_array_equal(model.transduction_[known], LABELS[known])


@pytest.mark.parametrize("method", ["normatch", "fixmatch", "supervised"])
def test_vectors_and_string_labels(method: str) -> None:
    names = np.array([f"digit {d}" for d in DIGITS.target], dtype=object)
    labels = np.where(LABELS == -1, -1, names)
    model = NorMatchClassifier(method=method, steps=60, batch=16, ratio=3).fit(DIGITS.data, labels)
    assert model.score(DIGITS.data, names) > 0.7


def test_the_constructor_only_stores() -> None:
    model = NorMatchClassifier(steps=7, seed=3)
    assert clone(model).get_params() == model.get_params()


def test_the_same_seed_gives_the_same_model() -> None:
    first, again = (NorMatchClassifier(steps=5, batch=8, ratio=2, seed=4).fit(IMAGES, LABELS) for _ in range(2))
    np.testing.assert_array_equal(first.predict_proba(IMAGES[:20]), again.predict_proba(IMAGES[:20]))


@pytest.mark.parametrize(
    ("inputs", "labels", "message"),
    [
        (IMAGES, np.full(len(IMAGES), -1), "holds no label"),
        (IMAGES, LABELS[:5], "one label for each"),
        (IMAGES.astype(float), LABELS, "give uint8 images"),
        (np.full((4, 3), np.nan), np.array([0, 1, -1, -1]), "NaN"),
    ],
)
def test_errors(inputs: np.ndarray, labels: np.ndarray, message: str) -> None:
    with pytest.raises(UserError, match=message):
        NorMatchClassifier(steps=2).fit(inputs, labels)
