"""The scikit-learn face: fit on arrays with −1 for unlabelled, predict, score."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from normatch.augment import AugmentConfig
from normatch.config import Config
from normatch.data import UNKNOWN, Corpus, Dataset
from normatch.engine.job import prepare
from normatch.engine.progress import quiet
from normatch.engine.recorder import Silent
from normatch.engine.train import Loop
from normatch.errors import UserError
from normatch.evaluate.predictor import Predictor

__all__ = ["NorMatchClassifier"]


class NorMatchClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """NorMatch on images (N, H, W[, C]) of uint8, or on feature vectors (N, D).

    ``y`` is −1 where the class is not known; with other label types, such as strings, −1 still means unlabelled.

    Parameters
    ----------
    backbone: the network; None chooses one for the shape of the data.
    steps: training steps.
    method, settings: another method of the package, and its choices; None is its defaults.
    augment: the views; None is a sensible set without flips for grey images.
    seed, device, batch, ratio: as in :class:`normatch.Config`.
    """

    def __init__(
        self,
        method: str = "normatch",
        settings: Any = None,
        backbone: str | None = None,
        augment: AugmentConfig | None = None,
        steps: int = 600,
        batch: int = 64,
        ratio: int = 7,
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        self.method = method
        self.settings = settings
        self.backbone = backbone
        self.augment = augment
        self.steps = steps
        self.batch = batch
        self.ratio = ratio
        self.seed = seed
        self.device = device

    def fit(self, X: NDArray[Any], y: NDArray[Any]) -> "NorMatchClassifier":
        """Train on the labelled items of ``X`` and learn from the others."""
        inputs, labels = self._inputs(X), np.asarray(y)
        known = labels != UNKNOWN
        if labels.shape != inputs.shape[:1]:
            raise UserError(f"y has shape {labels.shape}: give one label for each of the {len(inputs)} inputs")
        if not known.any():
            raise UserError("y holds no label: mark only what is unlabelled with -1")
        self.classes_ = np.unique(labels[known])
        codes = np.full(len(labels), UNKNOWN, dtype=np.int64)
        codes[known] = np.searchsorted(self.classes_, labels[known])
        train = Dataset(inputs, codes, tuple(map(str, self.classes_.tolist())))
        loop = Loop(prepare(self._config(train), Corpus("arrays", train)))
        with loop.job.runtime.scope():
            loop.run(Silent(), quiet, None)
        self.predictor_ = Predictor(loop.step.average.model.cpu())
        self.n_features_in_ = int(np.prod(np.shape(X)[1:]))
        self.transduction_ = np.where(known, labels, self.predict(X))
        return self

    def predict_proba(self, X: NDArray[Any]) -> NDArray[np.float32]:
        """(N, K) probabilities, columns in the order of ``classes_``."""
        check_is_fitted(self)
        return self.predictor_.predict_proba(self._inputs(X))

    def predict(self, X: NDArray[Any]) -> NDArray[Any]:
        """The likeliest class of each input."""
        p = self.predict_proba(X)
        return np.asarray(self.classes_[p.argmax(1)])

    def _config(self, train: Dataset) -> Config:
        epoch = max(1, self.steps // 12)
        changes = {} if self.settings is None else {"settings": self.settings}
        return Config(
            name="estimator",
            data="arrays",
            labels=None,
            method=self.method,
            backbone=self.backbone or "auto",
            augment=self.augment or AugmentConfig(flip=train.is_images and train.shape[0] == 3),
            steps=self.steps,
            epoch=epoch,
            batch=self.batch,
            ratio=self.ratio,
            ema=0.99,
            ema_ramp=True,
            norm_momentum=0.1,
            seed=self.seed,
            device=self.device,  # type: ignore[arg-type]
            **changes,
        )

    @staticmethod
    def _inputs(X: NDArray[Any]) -> NDArray[Any]:
        array = np.asarray(X)
        if array.dtype == np.uint8 and array.ndim == 3:
            return array[..., None]
        if array.ndim == 2:
            return array.astype(np.float32)
        return array
