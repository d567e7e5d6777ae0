"""The scikit-learn face: scikit-learn's own suite, pipelines, searches, images and tables."""

from functools import partial
from typing import Any

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
from sklearn.utils.estimator_checks import (
    check_get_params_invariance,
    check_no_attributes_set_in_init,
    check_parameters_default_constructible,
    parametrize_with_checks,
)

from normatch import FixMatchClassifier, NorMatchClassifier, SemiSupervisedClassifier
from normatch.augment import AugmentConfig
from normatch.config import Config, flat, to_json
from normatch.data import Dataset
from normatch.errors import UserError
from normatch.evaluate import Predictor
from normatch.training.loop import Loop

DIGITS = load_digits()
IMAGES = (DIGITS.images * 15).astype(np.uint8)
LABELS = np.where(np.random.default_rng(0).uniform(size=len(DIGITS.target)) < 0.1, DIGITS.target, -1)
QUICK: dict[str, Any] = {"steps": 20, "batch": 8, "ratio": 2}
TABLE = Dataset(np.zeros((4, 9), np.float32), np.arange(4), ("a", "b", "c", "d"))

Supervised = partial(SemiSupervisedClassifier, "supervised")
FORMS: list[Any] = [NorMatchClassifier, FixMatchClassifier, Supervised]
each_form = pytest.mark.parametrize("kind", FORMS, ids=["NorMatch", "FixMatch", "by name"])


# FixMatch's form differs from these in its constructor alone.
@parametrize_with_checks([NorMatchClassifier(**QUICK), Supervised(**QUICK)])  # type: ignore[untyped-decorator]
def test_scikit_learns_own_suite(estimator: Any, check: Any) -> None:
    check(estimator)


def test_scikit_learns_rules_of_a_constructor() -> None:
    for check in (check_parameters_default_constructible, check_no_attributes_set_in_init, check_get_params_invariance):
        check("FixMatchClassifier", FixMatchClassifier())


@each_form
def test_images(kind: Any) -> None:
    model = kind(steps=60, batch=16, ratio=3).fit(IMAGES, LABELS)
    p = model.predict_proba(IMAGES[:50])
    assert p.shape == (50, 10)
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-5)
    np.testing.assert_array_equal(model.predict(IMAGES[:50]), model.classes_[p.argmax(1)])
    assert model.score(IMAGES, DIGITS.target) > 0.7
    known = LABELS != -1
    np.testing.assert_array_equal(model.transduction_, np.where(known, LABELS, model.predict(IMAGES)))
    with pytest.raises(UserError, match="was fitted on 64"):
        model.predict(IMAGES[:, :4])


def test_tables_and_string_labels() -> None:
    names = np.array([f"digit {d}" for d in DIGITS.target], dtype=object)
    model = NorMatchClassifier(steps=60, batch=16, ratio=3).fit(DIGITS.data, np.where(LABELS == -1, -1, names))
    assert model.score(DIGITS.data, names) > 0.7


def test_it_predicts_with_the_averaged_weights_and_without_the_callers_autocast(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else unlabelled samples may get another class than from the model as it is."""
    loops: list[Loop] = []
    rounding: list[bool] = []
    run, predict_proba = Loop.run, Predictor.predict_proba

    def kept(self: Loop) -> Any:
        loops.append(self)
        return run(self)

    def noted(self: Predictor, x: Any) -> NDArray[np.float32]:
        rounding.append(torch.is_autocast_enabled("cpu"))
        return predict_proba(self, x)

    monkeypatch.setattr(Loop, "run", kept)
    monkeypatch.setattr(Predictor, "predict_proba", noted)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model = NorMatchClassifier(**QUICK).fit(DIGITS.data[:60], DIGITS.target[:60])
    assert rounding == [False]
    (loop,) = loops
    used, averaged = model.predictor_.model.state_dict(), loop.step.ema.model.state_dict()
    assert all(torch.equal(used[name], averaged[name]) for name in averaged)
    assert not torch.equal(used["head.weight"], loop.job.method.model.state_dict()["head.weight"])


def test_with_one_other_class_minus_one_is_a_class() -> None:
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(-2, 1, (30, 3)), rng.normal(2, 1, (30, 3))])
    y = np.repeat([-1, 1], 30)
    with pytest.warns(UserWarning, match=r"^y holds only 1 besides -1: -1 is taken as a class, .+") as seen:
        model = NorMatchClassifier(**QUICK).fit(X, y)
    assert [warning.filename for warning in seen] == [__file__]
    assert model.classes_.tolist() == [-1, 1]
    assert model.score(X, y) > 0.9


def test_a_search_in_a_pipeline_over_numpys_numbers_is_judged_by_labelled_samples() -> None:
    """Nine tenths have no label: if they counted as wrong, no score could exceed 0.1."""
    pipeline = make_pipeline(StandardScaler(), NorMatchClassifier(batch=8, ratio=1))
    grid = {"steps": np.arange(30, 31), "lr": np.array([0.05], np.float32), "num_weight": [0.0, 1e-3]}
    search = GridSearchCV(
        pipeline, {f"normatchclassifier__{name}": values for name, values in grid.items()}, cv=2, error_score="raise"
    )
    search.fit(DIGITS.data, LABELS)
    assert search.best_score_ > 0.3
    assert search.best_estimator_[-1].n_iter_ == 30


def test_a_score_leaves_out_what_has_no_label() -> None:
    X, truth = DIGITS.data[:300], DIGITS.target[:300]
    model = NorMatchClassifier(**QUICK).fit(X, truth)
    right = model.predict(X) == truth
    some = np.where(np.arange(300) < 200, -1, truth)
    assert 0 < right.mean() < 1
    assert model.score(X, some) == pytest.approx(right[200:].mean())
    weight = np.arange(300.0)
    assert model.score(X, some, weight) == pytest.approx(np.average(right[200:], weights=weight[200:]))
    with pytest.raises(UserError, match=r"^y holds no label to score: .+$"):
        model.score(X, np.full(300, -1))


CHANGES: dict[str, tuple[Any, dict[str, Any]]] = {
    "num_weight": (0.5, {"settings.num_weight": 0.5}),
    "disagree": ("drop", {"settings.disagree": "drop"}),
    "alignment": (False, {"settings.alignment": False}),
    "threshold": (0.5, {"settings.threshold": 0.5}),
    "backbone": ("identity", {"backbone": "identity"}),
    "augment": (AugmentConfig(mix=0.5, mask=0.1), {"augment.mask": 0.1}),
    "steps": (70, {"steps": 70, "epoch": 7}),
    "batch": (9, {"batch": 9}),
    "ratio": (5, {"ratio": 5}),
    "lr": (0.01, {"optim.lr": 0.01}),
    "muon": (0.02, {"optim.muon": 0.02}),
    "random_state": (3, {"seed": 3}),
    "device": ("cpu", {"device": "cpu"}),
}
"""Of each parameter another value, and what it changes in the config."""


def fields(config: Config) -> dict[str, Any]:
    return flat(to_json(config))


@pytest.mark.parametrize("model", [NorMatchClassifier(), FixMatchClassifier(), SemiSupervisedClassifier("fixmatch")])
def test_every_parameter_reaches_the_config(model: Any) -> None:
    usual = fields(model._config(TABLE))
    for name in model.get_params().keys() - {"method", "settings"}:
        value, expected = CHANGES[name]
        changed = fields(clone(model).set_params(**{name: value})._config(TABLE))
        assert {field: v for field, v in changed.items() if v != usual[field]} == expected, name


@each_form
def test_the_defaults_of_vectors_and_of_images(kind: Any) -> None:
    labels, names = np.arange(2, dtype=np.int64), ("a", "b")
    colour, grey = (Dataset(np.zeros((2, 16, 16, c), np.uint8), labels, names) for c in (3, 1))
    of_table, of_images = kind()._config(TABLE), kind()._config(colour)
    assert (of_table.steps, of_table.ratio) == (300, 3)
    # Without strong views there is nothing to mix and mask.
    assert of_table.augment == (AugmentConfig() if kind is Supervised else AugmentConfig(mix=0.5, mask=0.5))
    assert (of_images.steps, of_images.ratio, of_images.augment) == (256, 7, AugmentConfig())
    assert kind()._config(grey).augment == AugmentConfig(flip=False)
    assert (of_table.ema, of_table.ema_ramp, of_table.norm_momentum) == (0.99, True, 0.1)
    assert {steps: kind(steps=steps)._config(TABLE).epoch for steps in (1, 9, 237)} == {1: 1, 9: 1, 237: 23}
    rates = [
        model._config(colour).optim.muon for model in (kind(), kind(steps=1024, backbone="wrn-28-2"), kind(muon=0))
    ]
    assert [*rates, of_table.optim.muon] == [0.1, 0.05, 0, 0]


def test_a_named_form_is_the_same_as_its_method_by_name() -> None:
    for form, method, settings in (
        (NorMatchClassifier(), "normatch", None),
        (NorMatchClassifier(disagree="drop"), "normatch", {"disagree": "drop"}),
        (FixMatchClassifier(threshold=0.9), "fixmatch", {"threshold": 0.9}),
    ):
        by_name = SemiSupervisedClassifier(method, settings)
        assert by_name._config(TABLE) == form._config(TABLE).replace(name="SemiSupervisedClassifier")
        assert clone(by_name).get_params() == by_name.get_params()


@pytest.mark.parametrize(
    ("method", "settings", "says"),
    [
        (
            "fixmatch",
            {"treshold": 0.9},
            "unknown field settings.treshold: choose from alignment, consensus, ",
        ),
        ("supervised", {"threshold": 0.9}, "unknown field settings.threshold: choose from none"),
        ("fixmatch", {"threshold": "high"}, "settings.threshold is 'high': give float"),
        ("fixmatch", [0.9], r"settings is \[0.9\]: give a dict of settings of 'fixmatch', or None"),
        ("maxmatch", None, "unknown method 'maxmatch'"),
    ],
)
def test_settings_are_checked_by_the_method(method: str, settings: Any, says: str) -> None:
    with pytest.raises(UserError, match=f"^{says}"):
        SemiSupervisedClassifier(method, settings)._config(TABLE)


@pytest.mark.parametrize(("counts", "aligned"), [((40, 10), False), ((20, 10), True), ((3, 1), True)])
def test_skewed_labels_are_not_aligned_unless_asked_for(counts: tuple[int, int], aligned: bool) -> None:
    labels = np.repeat([0, 1, -1], [*counts, 50])
    train = Dataset(np.zeros((len(labels), 9), np.float32), labels, ("a", "b"))
    assert fields(NorMatchClassifier()._config(train))["settings.alignment"] is aligned
    assert fields(NorMatchClassifier(alignment=True)._config(train))["settings.alignment"] is True


def test_random_state_is_as_in_scikit_learn() -> None:
    """An int is the seed itself; a RandomState, and None, draw one."""

    def seed(state: Any) -> int:
        return NorMatchClassifier(random_state=state)._config(TABLE).seed

    assert (seed(0), seed(np.int64(7))) == (0, 7)
    assert seed(np.random.RandomState(1)) == seed(np.random.RandomState(1)) != seed(np.random.RandomState(2))
    assert seed(None) != seed(None)


class NotAvailable:
    """As pandas' NA: to compare it gives itself, which is neither true nor false."""

    def __ne__(self, other: object) -> "NotAvailable":  # type: ignore[override]
        return self

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise TypeError("boolean value of NA is ambiguous")

    def __str__(self) -> str:
        return "<NA>"


@pytest.mark.parametrize(
    ("mark", "says"),
    [
        ("-1", "y holds '-1' among strings"),
        (" ", "y holds ' ' among strings"),
        ("NaN", "y holds 'NaN'"),
        (None, "y holds None: give the number -1"),
        (np.nan, "y holds nan: give"),
        (NotAvailable(), "y holds <NA>: give"),
        (np.datetime64("NaT"), "y holds NaT: give"),
    ],
)
def test_other_marks_of_unlabelled_samples_are_errors(mark: Any, says: str) -> None:
    """A column of a table has them; '-1' would silently be a class."""
    with pytest.raises(UserError, match=says):
        NorMatchClassifier(**QUICK).fit(IMAGES[:30], np.array(["cat", "dog", mark] * 10, dtype=object))


VECTORS = (DIGITS.data, LABELS)


@pytest.mark.parametrize(
    ("model", "data", "message"),
    [
        (NorMatchClassifier(), (IMAGES, np.full(len(IMAGES), -1)), "holds no label"),
        (NorMatchClassifier(), (IMAGES, LABELS[:5]), "inconsistent numbers of samples"),
        (NorMatchClassifier(), (IMAGES.astype(float), LABELS), "give uint8 images"),
        (NorMatchClassifier(), (np.full((4, 3), np.nan), np.array([0, 1, -1, -1])), "NaN"),
        (NorMatchClassifier(), (np.ones((2, 3)), np.array(["cat", -1], dtype=object)), "only 'cat' besides -1: label"),
        (NorMatchClassifier(), (np.ones((3, 3)), ["cat", "dog", -1]), "y holds '-1' among strings"),
        (FixMatchClassifier(threshold=2.0), VECTORS, "settings.threshold is 2.0"),
        (FixMatchClassifier(muon=0.1), VECTORS, "optim.muon is 0.1, but method"),
        (FixMatchClassifier(augment=AugmentConfig(ops=3)), VECTORS, "augment.ops is 3, which is for images"),
        (FixMatchClassifier(random_state=-1), VECTORS, "seed is -1"),
    ],
)
def test_errors(model: Any, data: tuple[Any, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        model.fit(*data)
    with pytest.raises(NotFittedError):
        model.predict(data[0])


def test_a_fit_that_fails_leaves_the_classes_as_they_were() -> None:
    """New classes with the old network would give wrong names without a word."""
    model = NorMatchClassifier(**QUICK).fit(IMAGES[:60], DIGITS.target[:60])
    before = model.predict(IMAGES[:5])
    with pytest.raises(UserError, match="steps is 0"):
        model.set_params(steps=0).fit(IMAGES[:60], np.arange(60) % 2)
    np.testing.assert_array_equal(model.predict(IMAGES[:5]), before)
