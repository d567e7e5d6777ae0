"""Estimators with scikit-learn's interface: fit on arrays with −1 for unlabelled, predict, score."""

import warnings
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    assert_all_finite,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from normatch.annotations import from_json
from normatch.augment import AugmentConfig
from normatch.autoconfig import muon_rate
from normatch.config import Config
from normatch.data import UNKNOWN, Corpus, Dataset
from normatch.data.manifest import NO_CLASS
from normatch.data.split import label_counts, skewed
from normatch.device import Device
from normatch.errors import UserError
from normatch.evaluate.predict import Predictor
from normatch.methods import Settings, methods
from normatch.methods.parts.groups import OptimConfig
from normatch.nets import fitting_backbone
from normatch.training.job import prepare
from normatch.training.loop import Loop

__all__ = ["FixMatchClassifier", "NorMatchClassifier", "SemiSupervisedClassifier"]

EPOCHS = 10
"""Number of epochs into which the steps of a fit are divided; the ramp of the flow's losses counts epochs."""

IMAGES, VECTORS = {"steps": 256, "ratio": 7}, {"steps": 300, "ratio": 3}
"""What None means: for vectors chosen on validation samples of four data sets, among settings whose fit takes seconds;
the steps of images on digits."""


def _as_labels(y: Any) -> NDArray[Any]:
    """(N,) labels; UserError if one looks like the mark of an unlabelled sample, but is not the number −1."""
    labels: NDArray[Any] = column_or_1d(y, warn=True)
    for label in labels.tolist() if labels.dtype.kind in "fUO" else ():
        if isinstance(label, str) and label.strip().lower() in {"", *NO_CLASS}:
            raise UserError(
                f"y holds {label!r} among strings, which would be a class: give y as an object array, with the number "
                f"{UNKNOWN} where the class is not known"
            )
        if _is_missing(label):
            raise UserError(f"y holds {label}: give the number -1 where the class is not known")
    if labels.dtype.kind == "f":
        assert_all_finite(labels, input_name="y")
    return labels


def _is_missing(label: Any) -> bool:
    """Whether it is None or one of the values that are not equal to themselves: NaN, NaT, pandas' NA."""
    try:
        return label is None or bool(label != label)
    except TypeError:  # NA != NA is NA, which is neither true nor false
        return True


class SemiSupervisedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Any method by name, on uint8 images (N, H, W[, C]) or on feature vectors (N, D).

    ``y`` is −1 where the class is not known. Fitted attributes: ``classes_``, ``transduction_`` (the label of each
    sample, given or predicted), ``n_features_in_``. Run fits in parallel processes, not in threads: these would share
    torch's random generator.

    Parameters
    ----------
    method: one of ``normatch list methods``.
    settings: those of its settings that differ from their defaults, as ``{"threshold": 0.9}``; None is none. Unless
        ``alignment`` is among them, it is off where the labels are 3 : 1 or more, which a random draw does not explain.
    backbone: the network; "auto" picks one that suits the shape of the data.
    augment: the views; None is crops, RandAugment and cutout for images (flips for colour images only), and noise,
        mixing and masking for vectors.
    steps, ratio: as in :class:`normatch.Config`; None is 256 and 7 for images, 300 and 3 for vectors.
    batch, lr, device: as in :class:`normatch.Config`.
    muon: Muon's learning rate for convolutions; None is one that suits the steps, 0 is SGD for them too.
    random_state: seed of labels, weights, batches and views; None and a RandomState draw one.
    """

    def __init__(
        self,
        method: str = "freematch",
        settings: dict[str, Any] | None = None,
        backbone: str = "auto",
        augment: AugmentConfig | None = None,
        steps: int | None = None,
        batch: int = 32,
        ratio: int | None = None,
        lr: float = 0.06,
        muon: float | None = None,
        random_state: Any = 0,
        device: Device = "auto",
    ) -> None:
        self.method = method
        self.settings = settings
        self.backbone = backbone
        self.augment = augment
        self.steps = steps
        self.batch = batch
        self.ratio = ratio
        self.lr = lr
        self.muon = muon
        self.random_state = random_state
        self.device = device

    def _given_settings(self) -> dict[str, Any]:
        """The settings that differ from the method's defaults, from the constructor's parameters."""
        if not isinstance(self.settings, dict | None):
            raise UserError(f"settings is {self.settings!r}: give a dict of settings of {self.method!r}, or None")
        return self.settings or {}

    def fit(self, X: Any, y: Any) -> "SemiSupervisedClassifier":
        """Train on the labelled samples of ``X`` and learn from the others, where ``y`` is −1.

        If y has fewer than two classes besides −1, then −1 is taken as a class too and no sample is unlabelled, because
        scikit-learn's two classes may be −1 and 1; a warning says so. Among strings it is an error.
        """
        inputs = self._inputs(X, reset=True)
        if y is None:
            raise UserError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        labels = _as_labels(y)
        check_consistent_length(inputs, labels)
        known = np.asarray(labels != UNKNOWN)
        if known.any() and not known.all() and len(np.unique(labels[known])) < 2:
            only = labels[known][0]
            if isinstance(only, str):
                raise UserError(f"y holds only {only!r} besides {UNKNOWN}: label samples of a second class")
            warnings.warn(
                f"y holds only {only!s} besides {UNKNOWN}: {UNKNOWN} is taken as a class, and no sample as unlabelled; "
                f"label samples of a second class if {UNKNOWN} means unlabelled, or give the class another number",
                UserWarning,
                stacklevel=2,
            )
            known = np.ones(len(labels), dtype=bool)
        if not known.any():
            raise UserError("y holds no label: mark only what is unlabelled with -1")
        check_classification_targets(labels[known])
        classes, codes = np.unique(labels[known], return_inverse=True)
        targets = np.full(len(labels), UNKNOWN, dtype=np.int64)
        targets[known] = codes
        train = Dataset(inputs, targets, tuple(map(str, classes.tolist())))
        loop = Loop(prepare(self._config(train), Corpus("arrays", train)))
        with loop.job.runtime.scope():
            loop.run()
            predictor = Predictor(loop.step.ema.model)
            predicted = classes[predictor.predict_proba(inputs).argmax(1)]
        predictor.model.cpu()  # only now: a GPU predicts all of X in no time
        # Only now: a fit that fails leaves an earlier one as it was.
        self.classes_, self.predictor_, self.n_iter_ = classes, predictor, loop.step.done
        self.transduction_ = np.where(known, labels, predicted)
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        """(N, K) probabilities, columns in the order of ``classes_``."""
        check_is_fitted(self, "predictor_")
        return self.predictor_.predict_proba(self._inputs(X, reset=False))

    def predict(self, X: Any) -> NDArray[Any]:
        """The likeliest class of each input."""
        p = self.predict_proba(X)
        return np.asarray(self.classes_[p.argmax(1)])

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Share of the samples with a known class that are predicted right; those where ``y`` is −1 do not count.

        If −1 is one of ``classes_``, every class is known.
        """
        predicted, labels = self.predict(X), _as_labels(y)
        check_consistent_length(predicted, labels, sample_weight)
        known = np.asarray(labels != UNKNOWN) | (UNKNOWN in self.classes_.tolist())
        if not known.any():
            raise UserError("y holds no label to score: give samples whose class is known")
        weight = None if sample_weight is None else np.asarray(sample_weight)[known]
        return float(accuracy_score(labels[known], predicted[known], sample_weight=weight))

    def _settings(self, train: Dataset) -> Settings:
        kind, given = methods.get(self.method).Settings, self._given_settings()
        if getattr(kind, "alignment", False) and skewed(label_counts(train).values()):
            given = {"alignment": False} | given
        return from_json(kind, given, "settings.")

    def _config(self, train: Dataset) -> Config:
        defaults = IMAGES if train.is_images else VECTORS
        steps = defaults["steps"] if self.steps is None else self.steps
        backbone = fitting_backbone(self.backbone, train.shape).name
        muon = muon_rate(self.method, backbone, steps) if self.muon is None else self.muon
        seed = self.random_state
        if not isinstance(seed, int | np.integer):  # scikit-learn's other two: None and a RandomState
            seed = int(check_random_state(seed).randint(2**31 - 1))
        return Config(
            name=type(self).__name__,
            data="arrays",
            labels=None,
            method=self.method,
            settings=self._settings(train),
            backbone=self.backbone,
            augment=self.augment or self._augment(train),
            steps=steps,
            epoch=max(1, steps // EPOCHS),
            batch=self.batch,
            ratio=defaults["ratio"] if self.ratio is None else self.ratio,
            optim=OptimConfig(lr=self.lr, muon=muon),
            ema=0.99,
            ema_ramp=True,
            norm_momentum=0.1,
            seed=seed,
            device=self.device,
        )

    def _augment(self, train: Dataset) -> AugmentConfig:
        views = methods.get(self.method).views
        if train.is_images:
            return AugmentConfig(flip=train.shape[0] == 3)  # grey images are often characters
        return AugmentConfig(mix=0.5, mask=0.5) if "strong" in views.labelled + views.unlabelled else AugmentConfig()

    def _inputs(self, X: Any, *, reset: bool) -> NDArray[Any]:
        """uint8 images (N, H, W[, C]) as they are; anything else must be a table of finite numbers (N, D)."""
        if isinstance(X, np.ndarray) and X.dtype == np.uint8 and X.ndim in (3, 4):
            images = X[..., None] if X.ndim == 3 else X
            size = int(np.prod(images.shape[1:]))
            if reset:
                self.n_features_in_ = size
            elif size != self.n_features_in_:
                raise UserError(
                    f"X has {size} values an image, {type(self).__name__} was fitted on {self.n_features_in_}"
                )
            return images
        if isinstance(X, np.ndarray) and X.ndim > 2:
            raise UserError(f"X is {X.dtype} of shape {X.shape}: give uint8 images (N, H, W[, C]) or features (N, D)")
        table: NDArray[Any] = validate_data(self, X, dtype=np.float32, reset=reset)
        return table


class NorMatchClassifier(SemiSupervisedClassifier):
    """NorMatch; otherwise as :class:`SemiSupervisedClassifier`.

    Parameters
    ----------
    num_weight: λ, the weight of the flow's likelihood of unlabelled features (eq. 10).
    disagree: weight of a pseudo-label on which the classifiers disagree: their least confidence ("min") or 0 ("drop").
    alignment: distribution alignment, which makes all classes equally frequent; None is on, unless the labels are
        3 : 1 or more, which a random draw does not explain.
    """

    def __init__(
        self,
        num_weight: float = 1e-6,
        disagree: Literal["min", "drop"] = "min",
        alignment: bool | None = None,
        backbone: str = "auto",
        augment: AugmentConfig | None = None,
        steps: int | None = None,
        batch: int = 32,
        ratio: int | None = None,
        lr: float = 0.06,
        muon: float | None = None,
        random_state: Any = 0,
        device: Device = "auto",
    ) -> None:
        super().__init__("normatch", None, backbone, augment, steps, batch, ratio, lr, muon, random_state, device)
        self.num_weight = num_weight
        self.disagree = disagree
        self.alignment = alignment

    def _given_settings(self) -> dict[str, Any]:
        alignment = {} if self.alignment is None else {"alignment": self.alignment}
        return {"num_weight": self.num_weight, "disagree": self.disagree} | alignment


class FixMatchClassifier(SemiSupervisedClassifier):
    """FixMatch; otherwise as :class:`SemiSupervisedClassifier`.

    Parameters
    ----------
    threshold: least confidence at which a pseudo-label is used.
    """

    def __init__(
        self,
        threshold: float = 0.95,
        backbone: str = "auto",
        augment: AugmentConfig | None = None,
        steps: int | None = None,
        batch: int = 32,
        ratio: int | None = None,
        lr: float = 0.06,
        muon: float | None = None,
        random_state: Any = 0,
        device: Device = "auto",
    ) -> None:
        super().__init__("fixmatch", None, backbone, augment, steps, batch, ratio, lr, muon, random_state, device)
        self.threshold = threshold

    def _given_settings(self) -> dict[str, Any]:
        return {"threshold": self.threshold}
