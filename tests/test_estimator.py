"""The scikit-learn face: scikit-learn's own suite, pipelines, searches, images and tables."""

from typing import Any

import joblib
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from normatch import FixMatchClassifier, NorMatchClassifier
from normatch.augment import AugmentConfig
from normatch.config import Config, flat, to_json
from normatch.data import Dataset
from normatch.errors import UserError
from normatch.evaluate import Predictor

DIGITS = load_digits()
IMAGES = (DIGITS.images * 15).astype(np.uint8)
rng = np.random.default_rng(0)
LABELS = np.where(rng.uniform(size=len(DIGITS.target)) < 0.1, DIGITS.target, -1)
QUICK: dict[str, Any] = {"steps": 20, "batch": 8, "ratio": 2}

both = pytest.mark.parametrize("kind", [NorMatchClassifier, FixMatchClassifier])


@parametrize_with_checks([NorMatchClassifier(**QUICK), FixMatchClassifier(**QUICK)])  # type: ignore[untyped-decorator]
def test_scikit_learns_own_suite(estimator: Any, check: Any) -> None:
    check(estimator)


@both
def test_images(kind: Any) -> None:
    model = kind(steps=60, batch=16, ratio=3).fit(IMAGES, LABELS)
    p = model.predict_proba(IMAGES[:50])
    assert p.shape == (50, 10)
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-5)
    np.testing.assert_array_equal(model.predict(IMAGES[:50]), model.classes_[p.argmax(1)])
    assert model.score(IMAGES, DIGITS.target) > 0.7
    known = LABELS != -1
    np.testing.assert_array_equal(model.transduction_[known], LABELS[known])
    with pytest.raises(UserError, match="was fitted on 64"):
        model.predict(IMAGES[:, :4])


@both
def test_tables_and_string_labels(kind: Any) -> None:
    names = np.array([f"digit {d}" for d in DIGITS.target], dtype=object)
    labels = np.where(LABELS == -1, -1, names)
    model = kind(steps=60, batch=16, ratio=3).fit(DIGITS.data, labels)
    assert model.score(DIGITS.data, names) > 0.7


def test_with_one_other_class_minus_one_is_a_class() -> None:
    X = np.concatenate([rng.normal(-2, 1, (30, 3)), rng.normal(2, 1, (30, 3))])
    y = np.repeat([-1, 1], 30)
    with pytest.warns(
        UserWarning, match=r"^y holds only 1 besides -1: -1 is taken as a class, .+ a second class"
    ) as seen:
        model = NorMatchClassifier(**QUICK).fit(X, y)
    assert [warning.filename for warning in seen] == [__file__]
    assert model.classes_.tolist() == [-1, 1]
    assert model.score(X, y) > 0.9


@both
def test_with_one_string_minus_one_is_unlabelled(kind: Any) -> None:
    """Numbers and strings have no order, so they are never classes of one problem."""
    with pytest.raises(UserError, match=r"^y holds only 'cat' besides -1: label items of a second class$"):
        kind(**QUICK).fit(np.ones((4, 3)), np.array(["cat", -1, "cat", -1], dtype=object))


def test_a_search_over_lambda_in_a_pipeline() -> None:
    pipeline = make_pipeline(StandardScaler(), NorMatchClassifier(**QUICK))
    search = GridSearchCV(pipeline, {"normatchclassifier__num_weight": [0.0, 1e-6, 1e-3]}, cv=2)
    search.fit(DIGITS.data[:200], DIGITS.target[:200])
    assert search.best_params_["normatchclassifier__num_weight"] in (0.0, 1e-6, 1e-3)
    assert search.best_score_ > 0.3


def test_a_score_leaves_out_what_has_no_label() -> None:
    X, truth = DIGITS.data[:300], DIGITS.target[:300]
    model = NorMatchClassifier(**QUICK).fit(X, truth)
    right = model.predict(X) == truth
    some = np.where(np.arange(300) < 200, truth, -1)
    assert 0 < right.mean() < 1
    assert model.score(X, some) == pytest.approx(right[:200].mean())
    weight = np.arange(300.0)
    assert model.score(X, some, weight) == pytest.approx(np.average(right[:200], weights=weight[:200]))
    assert model.score(X, truth) == pytest.approx(right.mean())
    with pytest.raises(UserError, match=r"^y holds no label to score: .+$"):
        model.score(X, np.full(300, -1))


def test_a_search_is_not_judged_by_unlabelled_items() -> None:
    """Nine tenths have no label: if they counted as wrong, no score could exceed 0.1."""
    search = GridSearchCV(NorMatchClassifier(batch=16, ratio=3), {"steps": [60]}, cv=2).fit(DIGITS.data, LABELS)
    assert search.best_score_ > 0.7


def test_a_search_over_numpy_s_numbers() -> None:
    grid = {"steps": np.arange(2, 4), "lr": np.array([0.05], np.float32), "alignment": np.array([True, False])}
    search = GridSearchCV(NorMatchClassifier(batch=8, ratio=1), grid, cv=2, error_score="raise")
    search.fit(DIGITS.data[:60], DIGITS.target[:60])
    assert search.best_params_["steps"] in (2, 3)
    assert search.best_estimator_.n_iter_ == search.best_params_["steps"]


def test_numpy_s_numbers_are_stored_as_they_are_given() -> None:
    given = {"steps": np.int64(2), "batch": np.int32(8), "seed": np.uint8(3), "lr": np.float32(0.05)}
    model = clone(NorMatchClassifier(**given, alignment=np.bool_(False)))  # type: ignore[arg-type]
    kept = model.get_params()
    assert {name: type(kept[name]) for name in given} == {name: type(value) for name, value in given.items()}
    model.fit(DIGITS.data, LABELS)
    assert model.n_iter_ == 2


def test_the_constructor_only_stores() -> None:
    model = NorMatchClassifier(steps=7, seed=3, num_weight=0.1)
    assert clone(model).get_params() == model.get_params()


@both
def test_vectors_and_images_have_defaults_of_their_own(kind: Any) -> None:
    labels = np.arange(4, dtype=np.int64)
    colour, vectors = np.zeros((4, 16, 16, 3), np.uint8), np.zeros((4, 9), np.float32)
    names = ("a", "b", "c", "d")
    of_table, of_images = (kind()._config(Dataset(x, labels, names)) for x in (vectors, colour))
    assert (of_images.steps, of_images.ratio, of_images.augment) == (256, 7, AugmentConfig())
    assert (of_table.steps, of_table.ratio) == (300, 3), "a fit on a table takes seconds"
    assert of_table.augment.mix > 0
    assert not kind()._config(Dataset(colour[..., :1], labels, names)).augment.flip
    given = kind(steps=7, ratio=2, augment=AugmentConfig(mask=0.1))._config(Dataset(vectors, labels, names))
    assert (given.steps, given.ratio, given.augment) == (7, 2, AugmentConfig(mask=0.1))


@both
def test_convolutions_are_trained_by_muon_unless_told_otherwise(kind: Any) -> None:
    names, labels = ("a", "b"), np.arange(2, dtype=np.int64)
    images = Dataset(np.zeros((2, 16, 16, 3), np.uint8), labels, names)
    table = Dataset(np.zeros((2, 9), np.float32), labels, names)
    assert kind()._config(images).optim.muon == 0.1
    assert kind(steps=1024, backbone="wrn-28-2")._config(images).optim.muon == 0.05
    assert kind(muon=0)._config(images).optim.muon == 0
    assert kind()._config(table).optim.muon == 0
    with pytest.raises(UserError, match=r"optim\.muon is 0\.1, but method"):
        kind(muon=0.1, **QUICK).fit(DIGITS.data[:60], DIGITS.target[:60])


def test_the_same_seed_gives_the_same_model() -> None:
    first, again = (NorMatchClassifier(steps=5, batch=8, ratio=2, seed=4).fit(IMAGES, LABELS) for _ in range(2))
    np.testing.assert_array_equal(first.predict_proba(IMAGES[:20]), again.predict_proba(IMAGES[:20]))


@pytest.mark.parametrize(
    ("inputs", "labels", "message"),
    [
        (IMAGES, np.full(len(IMAGES), -1), "holds no label"),
        (IMAGES, LABELS[:5], "inconsistent numbers of samples"),
        (IMAGES.astype(float), LABELS, "give uint8 images"),
        (np.full((4, 3), np.nan), np.array([0, 1, -1, -1]), "NaN"),
    ],
)
def test_errors(inputs: NDArray[Any], labels: NDArray[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NorMatchClassifier(steps=2).fit(inputs, labels)


def test_a_wrong_choice_is_named() -> None:
    with pytest.raises(UserError, match=r"settings.threshold is 2.0"):
        FixMatchClassifier(threshold=2.0).fit(DIGITS.data, LABELS)
    with pytest.raises(UserError, match=r"augment.ops is 3, which is for images"):
        FixMatchClassifier(augment=AugmentConfig(ops=3)).fit(DIGITS.data, LABELS)


@pytest.mark.parametrize(
    ("mark", "says"),
    [
        ("-1", "y holds '-1' among strings"),
        (" ", "y holds ' ' among strings"),
        ("NaN", "y holds 'NaN'"),
        (None, "y holds None: give the number -1"),
        (np.nan, "y holds nan: give"),
    ],
)
def test_other_marks_of_unlabelled_items_are_errors(mark: Any, says: str) -> None:
    """A column of a table has them; '-1' would silently be a class."""
    y = np.array(["cat", "dog", mark] * 10, dtype=object)
    with pytest.raises(UserError, match=says):
        NorMatchClassifier(**QUICK).fit(IMAGES[:30], y)


class NotAvailable:
    """As pandas' NA: to compare it gives itself, which is neither true nor false."""

    def __ne__(self, other: object) -> "NotAvailable":  # type: ignore[override]
        return self

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise TypeError("boolean value of NA is ambiguous")

    def __str__(self) -> str:
        return "<NA>"


@pytest.mark.parametrize(("mark", "says"), [(NotAvailable(), "<NA>"), (np.datetime64("NaT"), "NaT")])
def test_missing_values_of_tables_are_named(mark: object, says: str) -> None:
    y = np.array(["cat", "dog", mark] * 10, dtype=object)
    with pytest.raises(UserError, match=f"y holds {says}: give the number -1 where the class is not known"):
        NorMatchClassifier(**QUICK).fit(IMAGES[:30], y)
    fitted = NorMatchClassifier(**QUICK).fit(IMAGES[:30], np.array(["cat", "dog", -1] * 10, dtype=object))
    with pytest.raises(UserError, match=f"y holds {says}: give the number -1 where the class is not known"):
        fitted.score(IMAGES[:30], y)


def test_a_fit_that_fails_leaves_the_estimator_as_it_was() -> None:
    """New classes with the old network would give wrong names without a word."""
    model = NorMatchClassifier(**QUICK)
    with pytest.raises(UserError, match="steps is 0"):
        model.set_params(steps=0).fit(IMAGES[:60], DIGITS.target[:60])
    with pytest.raises(NotFittedError):
        model.predict(IMAGES[:5])
    model.set_params(**QUICK).fit(IMAGES[:60], DIGITS.target[:60])
    before = model.predict_proba(IMAGES[:5])
    with pytest.raises(UserError, match="steps is 0"):
        model.set_params(steps=0).fit(DIGITS.data[:60, :10], np.arange(60) % 2)
    np.testing.assert_array_equal(model.predict_proba(IMAGES[:5]), before)
    assert len(model.classes_) == 10


def test_minus_one_among_strings_is_no_class() -> None:
    """A list of both becomes strings in NumPy's hands."""
    X = np.random.default_rng(0).normal(size=(40, 3))
    y: list[object] = ["cat"] * 5 + ["dog"] * 5 + [-1] * 30
    with pytest.raises(UserError, match="y holds '-1' among strings"):
        NorMatchClassifier(steps=2).fit(X, y)
    fitted = NorMatchClassifier(steps=2).fit(X, np.array(y, dtype=object))
    assert fitted.classes_.tolist() == ["cat", "dog"]


TABLE = Dataset(np.zeros((4, 9), np.float32), np.arange(4), ("a", "b", "c", "d"))
CHANGES: dict[str, tuple[Any, dict[str, Any]]] = {
    "num_weight": (0.5, {"settings.num_weight": 0.5}),
    "consensus": ("drop", {"settings.consensus": "drop"}),
    "alignment": (False, {"settings.alignment": False}),
    "threshold": (0.5, {"settings.threshold": 0.5}),
    "backbone": ("linear", {"backbone": "linear"}),
    "augment": (AugmentConfig(mix=0.5, mask=0.1), {"augment.mask": 0.1}),
    "steps": (70, {"steps": 70, "epoch": 7}),
    "batch": (9, {"batch": 9}),
    "ratio": (5, {"ratio": 5}),
    "lr": (0.01, {"optim.lr": 0.01}),
    "muon": (0.02, {"optim.muon": 0.02}),
    "seed": (3, {"seed": 3}),
    "device": ("cpu", {"device": "cpu"}),
}
"""Of each parameter another value, and what it changes in the config."""


def fields(config: Config) -> dict[str, Any]:
    return flat(to_json(config))


@both
def test_every_parameter_reaches_the_config(kind: Any) -> None:
    usual = fields(kind()._config(TABLE))
    for name in kind().get_params():
        value, expected = CHANGES[name]
        changed = fields(kind(**{name: value})._config(TABLE))
        assert {field: v for field, v in changed.items() if v != usual[field]} == expected, name


@pytest.mark.parametrize(("counts", "aligned"), [((40, 10), False), ((20, 10), True), ((3, 1), True)])
def test_skewed_labels_are_not_aligned_unless_asked_for(counts: tuple[int, int], aligned: bool) -> None:
    labels = np.repeat([0, 1, -1], [*counts, 50])
    train = Dataset(np.zeros((len(labels), 9), np.float32), labels, ("a", "b"))
    assert fields(NorMatchClassifier()._config(train))["settings.alignment"] is aligned
    assert fields(NorMatchClassifier(alignment=True)._config(train))["settings.alignment"] is True


@both
def test_a_fit_is_short_and_its_averages_are_quick(kind: Any) -> None:
    config = kind()._config(TABLE)
    assert (config.ema, config.ema_ramp, config.norm_momentum) == (0.99, True, 0.1)
    epochs = {steps: kind(steps=steps)._config(TABLE).epoch for steps in (1, 9, 10, 237, 600)}
    assert epochs == {1: 1, 9: 1, 10: 1, 237: 23, 600: 60}
    assert config.epoch == config.steps // 10 == 30


@pytest.mark.slow
def test_parallel_processes_give_the_same_models() -> None:
    X, y = DIGITS.data[:200], LABELS[:200]
    models = [NorMatchClassifier(steps=3, batch=8, ratio=2, seed=seed) for seed in (4, 5)]
    with joblib.parallel_config("loky", inner_max_num_threads=1):
        fitted = joblib.Parallel(2)(joblib.delayed(clone(model).fit)(X, y) for model in models)
    for model, other in zip(models, fitted, strict=True):
        np.testing.assert_array_equal(model.fit(X, y).predict_proba(X), other.predict_proba(X))


def test_another_seed_gives_another_model() -> None:
    X, y = DIGITS.data[:200], LABELS[:200]
    first, other = (NorMatchClassifier(steps=3, batch=8, ratio=2, seed=seed).fit(X, y) for seed in (4, 5))
    assert not np.allclose(first.predict_proba(X[:20]), other.predict_proba(X[:20]))


def test_unlabelled_items_are_predicted_without_the_callers_autocast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else they may get another class than from the model as it is."""
    rounding: list[bool] = []
    predict_proba = Predictor.predict_proba

    def noted(self: Predictor, x: Any) -> NDArray[np.float32]:
        rounding.append(torch.is_autocast_enabled("cpu"))
        return predict_proba(self, x)

    monkeypatch.setattr(Predictor, "predict_proba", noted)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        NorMatchClassifier(**QUICK).fit(DIGITS.data[:60], DIGITS.target[:60])
    assert rounding == [False]
