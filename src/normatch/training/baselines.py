"""What a few seconds buy: logistic regression and label spreading on plain features, beside a run on one's own data."""

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from normatch.data import UNKNOWN
from normatch.data.dataset import Selected
from normatch.nets.frozen import Frozen, plain_name
from normatch.nets.model import HeadSpec, Model, features, logits
from normatch.nets.with_hog import WithHOG
from normatch.seeding import derive, sample
from normatch.significance import mcnemar
from normatch.training.diagnostics import START
from normatch.training.loop import Loop

__all__ = ["BASELINE", "Score", "compare", "cross_validated", "score_start"]

BASELINE = "baseline"
"""The name, without suffix, of the files of a run's logistic regression: those of a model."""

STRENGTHS = tuple(np.logspace(-4, 1, 6).tolist())
"""Inverse regularisations of the logistic regression, of which cross-validation over the labels chooses one."""
FEW = 0.1
"""The one where there are too few labels for that."""

MOST, CHOOSING = 10_000, 1_000
"""The most training samples, the most held-out samples, and the most labels to choose a strength by: so that it takes
seconds."""

NEIGHBOURS = 20

Floats = NDArray[np.float32]
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Score:
    """What a baseline reaches: an entry of ``baselines`` in ``result.json``."""

    name: str
    features: str
    accuracy: float | None
    """On the run's held-out samples or, without any, in cross-validation over its labels; None if these are too few."""
    n: int
    accuracy_of_run: float | None
    """On the same samples; None in cross-validation, for which the run would have to be trained again."""
    p: float | None
    """McNemar's test of the two."""
    seconds: float
    stored: bool
    """Whether it is what ``normatch predict --with baseline`` uses."""

    @property
    def gain(self) -> float:
        """By how much its accuracy is above the run's; 0 if that is not known."""
        return 0.0 if self.accuracy is None or self.accuracy_of_run is None else self.accuracy - self.accuracy_of_run


def score_start(loop: Loop, start: Model, on: str, predicted: Labels) -> Score:
    """The model that a run started from, on the held-out samples for which it has ``predicted`` classes."""
    began, held = time.perf_counter(), loop.pool_of(loop.job.held_out[on])
    truth = held.labels.cpu().numpy()
    before, after = (guess == truth for guess in (logits(start, held.inputs).argmax(1).cpu().numpy(), predicted))
    p = mcnemar(after, before).p
    seconds = time.perf_counter() - began
    place = str(loop.config.start)
    return Score(START, place, float(before.mean()), len(truth), float(after.mean()), p, seconds, stored=False)


@dataclass(frozen=True)
class Plain:
    """Features of a run's samples that its training has not shaped."""

    name: str
    model: Model
    """From a sample to these features."""
    train: Floats
    held_out: Floats


def compare(loop: Loop, on: str | None, predicted: Labels) -> tuple[list[Score], Model]:
    """Fit baselines to the labels of a finished run, and score them on the held-out samples ``on`` for which it has
    ``predicted`` classes. Returns the logistic regression as well, as a model: on the features of which
    cross-validation over the labels makes most, since test samples choose nothing."""
    job, seed = loop.job, derive(loop.config.seed, "baselines")
    labelled = job.split.labelled[sample(len(job.split.labelled), MOST, seed)]
    others = job.split.others
    others = others[sample(len(others), MOST - len(labelled), seed)]
    rows = sample(len(predicted), MOST, seed)
    truth = loop.held_out[on].labels.cpu().numpy()[rows] if on is not None else None
    y = job.corpus.train.labels[labelled]
    labels = np.append(y, np.full(len(others), UNKNOWN))
    scores: list[Score] = []
    best: tuple[float, int, Model] | None = None

    def score(name: str, plain: Plain, start: float, classify: Callable[[Labels, Floats], Labels]) -> None:
        if truth is None:
            guess, right, run = _cross_validated(plain.train, labels, seed, classify), y, None
        else:
            guess, right, run = classify(labels, plain.held_out), truth, predicted[rows] == truth
        accuracy = float((guess == right).mean()) if len(guess) else None
        of_run, p = (float(run.mean()), mcnemar(run, guess == right).p) if run is not None else (None, None)
        seconds = time.perf_counter() - start
        scores.append(Score(name, plain.name, accuracy, len(guess), of_run, p, seconds, stored=False))

    start = time.perf_counter()
    for i, plain in enumerate(plain_features(loop, np.append(labelled, others), on, rows)):
        linear = _LogisticRegression(plain.train, y, seed)
        score("logistic regression", plain, start, linear.classify)
        if best is None or linear.validated > best[0]:
            best = linear.validated, len(scores) - 1, linear.head_of(plain.model)
        if i == 0 and len(others):
            score("label spreading", plain, time.perf_counter(), _spreading_on(plain.train))
        start = time.perf_counter()
    assert best is not None
    scores[best[1]] = replace(scores[best[1]], stored=True)
    return scores, best[2]


def plain_features(loop: Loop, train: Labels, on: str | None, held_out: Labels) -> Iterator[Plain]:
    """The plain features of the training samples at ``train`` and of those held out at ``held_out``."""
    job = loop.job
    for name, model in plain_models(job.start or job.whole(loop.step.ema.model)).items():
        # Of a frozen network they are there already.
        there = job.frozen is not None and model.spec.backbone == plain_name(job.frozen.spec.backbone)
        corpus = job.samples if there else job.corpus
        parts = corpus.train.view(train), (job.held_out_of(corpus)[on] if on else corpus.train).view(held_out)
        z, z_held_out = (
            np.asarray(part.inputs) if there else features(model, Selected.of(part.inputs)).cpu().numpy()
            for part in parts
        )
        yield Plain(name, model, z, z_held_out)


def plain_models(model: Model) -> dict[str, Model]:
    """Models from the same inputs to plain features, by what these are called: those of a frozen network, of images HOG
    and, without such a network, pixels, and vectors themselves."""
    spec = replace(model.spec, head=HeadSpec(), auxiliary=(), temperature=None)
    named = {"HOG": "hog"} if len(spec.shape) == 3 else {"the vectors": "identity"}
    made: dict[str, Model] = {}
    if isinstance(model.backbone, Frozen):
        name = plain_name(spec.backbone)
        beside = " with HOG" if isinstance(model.backbone.embedder, WithHOG) else ""
        plain = made[f"features of {name.rpartition(':')[2]}{beside}"] = Model(replace(spec, backbone=name))
        plain.backbone.load_state_dict(model.backbone.embedder.state_dict())
    elif len(spec.shape) == 3:
        named["pixels"] = "identity"
    made |= {name: Model(replace(spec, backbone=backbone)) for name, backbone in named.items()}
    device = model.normalise.mean.device
    return {name: plain.eval().to(device) for name, plain in made.items()}


def cross_validated(z: Floats, y: Labels, seed: int) -> float:
    """The accuracy of logistic regression on features (N, D) in cross-validation over the labels; 0 if these are too
    few."""
    return _LogisticRegression(z, y, seed).validated


class _LogisticRegression:
    """Softmax regression on standardised features, with the strength that cross-validation over the labels chooses."""

    def __init__(self, z: Floats, y: Labels, seed: int) -> None:
        from sklearn.model_selection import GridSearchCV

        self.mean, std = z.mean(0), z.std(0)
        self.std = np.where(std > 0, std, 1)
        known = (z[: len(y)] - self.mean) / self.std
        # The weights are combinations of the labelled samples: with few of these, a small problem has the same result.
        self.span = np.linalg.svd(known, full_matrices=False)[2] if len(y) < known.shape[1] else None
        self.known = known if self.span is None else known @ self.span.T
        some = sample(len(y), CHOOSING, seed, "strength")
        self.strength, self.validated = FEW, 0.0
        self.fitted: Any = None
        if (folds := _folds(y[some], seed)) is not None:
            with _one_thread():
                found = GridSearchCV(self._model(), {"C": STRENGTHS}, cv=folds).fit(self.known[some], y[some])
            self.strength, self.validated = found.best_params_["C"], float(found.best_score_)
        self.fitted = self._fit(y)

    def _model(self) -> Any:
        from sklearn.linear_model import LogisticRegression

        return LogisticRegression(C=self.strength, max_iter=200)

    def _fit(self, labels: Labels) -> Any:
        rows = np.flatnonzero(labels[: len(self.known)] != UNKNOWN)
        if len(rows) == len(self.known) and self.fitted is not None:
            return self.fitted
        with _one_thread():
            return self._model().fit(self.known[rows], labels[rows])

    def classify(self, labels: Labels, held_out: Floats) -> Labels:
        """The classes of ``held_out`` (M, D), from those ``labels`` that are known."""
        z = (held_out - self.mean) / self.std
        fitted = self._fit(labels)
        found: Labels = fitted.predict(z if self.span is None else z @ self.span.T).astype(np.int64)
        return found

    @torch.no_grad()
    def head_of(self, model: Model) -> Model:
        """The model, with this regression as its head, standardisation included."""
        weight, bias = self.fitted.coef_, self.fitted.intercept_
        if len(self.fitted.classes_) == 2:  # of which scikit-learn has the weights of the second alone
            weight, bias = np.vstack([0 * weight, weight]), np.append(0.0, bias)
        weight = (weight if self.span is None else weight @ self.span) / self.std
        head, at = model.get_submodule("head").state_dict(), torch.from_numpy(self.fitted.classes_)
        head["weight"].zero_()
        head["bias"].fill_(-1e4)  # of a class that none of the labels has
        head["weight"][at] = torch.from_numpy(weight).to(head["weight"])
        head["bias"][at] = torch.from_numpy(bias - weight @ self.mean).to(head["bias"])
        return model


def _spreading_on(train: Floats) -> Callable[[Labels, Floats], Labels]:
    """Label spreading over ``train`` (N, D) on the graph of nearest neighbours by cosine (Zhou et al. 2004)."""
    from sklearn.preprocessing import StandardScaler, normalize
    from sklearn.semi_supervised import LabelSpreading

    scale = StandardScaler().fit(train)
    z = normalize(scale.transform(train))

    def classify(labels: Labels, held_out: Floats) -> Labels:
        model = LabelSpreading(kernel="knn", n_neighbors=min(NEIGHBOURS, len(z)), max_iter=100)
        with warnings.catch_warnings(), np.errstate(invalid="ignore", divide="ignore"):
            warnings.simplefilter("ignore")  # of samples that no label reaches
            found: Labels = model.fit(z, labels).predict(normalize(scale.transform(held_out))).astype(np.int64)
        return found

    return classify


def _cross_validated(train: Floats, labels: Labels, seed: int, classify: Callable[[Labels, Floats], Labels]) -> Labels:
    """The class of each labelled sample, from the labels of other folds; empty where there are too few labels."""
    known = np.flatnonzero(labels != UNKNOWN)
    if (folds := _folds(labels[known], seed)) is None:
        return np.empty(0, np.int64)
    found = np.empty_like(labels[known])
    for _, out in folds.split(known, labels[known]):
        others = labels.copy()
        others[known[out]] = UNKNOWN
        found[out] = classify(others, train[known[out]])
    return found


def _folds(y: Labels, seed: int) -> Any:
    """None unless two classes have two labels: else a fold may leave one class to learn from."""
    from sklearn.model_selection import StratifiedKFold

    counts = np.sort(np.bincount(y)[np.unique(y)])
    splits = max(2, min(5, int(counts[0])))
    return StratifiedKFold(splits, shuffle=True, random_state=seed % 2**32) if counts[-2] > 1 else None


@contextmanager
def _one_thread() -> Iterator[None]:
    """For many small matrix products, where threads wait for each other; without warnings of strengths that fail."""
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", "The least populated class")
        yield
