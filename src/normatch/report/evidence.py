"""Gather what a report is made from: the files of a finished run and, if the data is there, its predictions."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from normatch.config import Config
from normatch.data import Corpus, Dataset, HostPool, Reading, Split
from normatch.data.images.cache import CacheError
from normatch.data.reading import DEFAULT
from normatch.device import Device, device_of
from normatch.errors import UserError
from normatch.evaluate.answers import Answers, must_be_the_same, must_look_alike, read_answers
from normatch.evaluate.metrics import soften
from normatch.evaluate.score import held_out
from normatch.methods import methods
from normatch.nets.model import Model, features, load_model
from normatch.seeding import sample
from normatch.training.job import open_corpus, with_test_set
from normatch.training.run import STAYED, Moved, Run

__all__ = ["Evidence", "Flow", "Predicted", "gather"]

UNLABELLED_SAMPLE = 5000
"""Number of unlabelled items to predict again: enough for the shares of classes, and fast without a GPU."""


@dataclass(frozen=True)
class Predicted:
    """Items of the data, and the predictions of head and auxiliary classifier for them."""

    which: Literal["test", "validation", "unlabelled"]
    items: NDArray[np.int64]
    dataset: Dataset
    logits: NDArray[np.float64]
    """(N, K) of the head that predicts."""
    auxiliary: NDArray[np.float64] | None
    """(N, K) probabilities of the first auxiliary classifier."""
    latents: NDArray[np.float64] | None
    """(N, D) g = f(z) of the flow."""

    @property
    def p(self) -> NDArray[np.float64]:
        """(N, K) probabilities of the head."""
        return soften(self.logits, 1.0)

    @property
    def described(self) -> str:
        return "unlabelled training items" if self.which == "unlabelled" else f"held-out {self.which} items"


@dataclass(frozen=True)
class Flow:
    """The flow's mixture: a Gaussian for each class in the space of latents."""

    means: NDArray[np.float64]
    scales: NDArray[np.float64]


@dataclass(frozen=True)
class Evidence:
    """Everything that a report is made from."""

    run: Run
    config: Config
    result: dict[str, Any]
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    """(C, H, W) of an image, or (D,) of a feature vector."""
    auxiliary: Literal["nfc", "mlp"] | None
    """The kind of the first auxiliary classifier."""
    records: list[dict[str, Any]]
    """The lines of metrics.jsonl."""
    warnings: list[dict[str, Any]]
    answers: Answers | None
    held_out: Predicted | None
    validation: Predicted | None
    """Validation items, if there is a test set too."""
    unlabelled: Predicted | None
    flow: Flow | None
    gone: str | None
    """Why the data could not be read again; None if it could."""

    @property
    def shown(self) -> Predicted | None:
        """The items to show: the held-out ones or, if there are none, unlabelled ones."""
        return self.held_out or self.unlabelled

    @property
    def makes_pseudo_labels(self) -> bool:
        return bool(methods.get(self.config.method).views.unlabelled)

    def gone_or(self, otherwise: str) -> str:
        """The reason why something is missing: that the data could not be read, or else ``otherwise``."""
        return f"The data could not be read again: {self.gone}." if self.gone else otherwise


def gather(path: Path, moved: Moved = STAYED, device: Device = "auto", reading: Reading = DEFAULT) -> Evidence:
    """Read a finished run and, in the same way as for training, its data.

    Missing or changed data is not an error: ``gone`` then has the reason, and all that needs no data is still there.
    It is one if ``moved`` says where the data is, and so is a cache that cannot be written to.
    """
    run = Run.open(path, moved.unlabelled)
    result, config = run.result, moved.applied_to(run.config.replace(device=device))
    model = load_model(path).to(device_of(device))
    split = run.split  # if it is damaged, that is an error
    answers = read_answers(run, model.spec.classes)
    held: Predicted | None = None
    validation: Predicted | None = None
    unlabelled: Predicted | None = None
    gone: str | None = None
    try:
        corpus = with_test_set(config, open_corpus(config, reading), run.given)
        must_be_the_same(run, corpus, model.spec, answers)
        predicted = _predict_all(run, split, corpus, model)
        if answers is not None and predicted[0] is not None:
            must_look_alike(run, corpus, predicted[0].logits.argmax(1), answers)
    except (UserError, OSError) as error:
        if moved != STAYED or isinstance(error, CacheError):
            raise
        gone = str(error)
    else:
        held, validation, unlabelled = predicted
        # Stored predictions take precedence: another device may round differently and change a prediction.
        answers = answers or (_answers(held) if held is not None else None)
    flow = model.flow
    return Evidence(
        run=run,
        config=run.config,
        result=result,
        classes=model.spec.classes,
        shape=model.spec.shape,
        auxiliary=_auxiliary_kind(model),
        records=list(run.metrics()),
        warnings=run.warnings,
        answers=answers,
        held_out=held,
        validation=validation,
        unlabelled=unlabelled,
        flow=Flow(_array(flow.mixture.means), _array(flow.mixture.scales)) if flow is not None else None,
        gone=gone,
    )


def _predict_all(
    run: Run, split: Split, corpus: Corpus, model: Model
) -> tuple[Predicted | None, Predicted | None, Predicted | None]:
    """Predictions for held-out items, for validation items if there is a test set too, and for unlabelled items."""
    train = corpus.train
    held = validation = unlabelled = None
    if run.result["n"]:
        which, at, dataset = held_out(run, corpus)
        held = _predict(model, which, at, dataset)
        if which == "test" and len(split.validation):
            validation = _predict(model, "validation", split.validation, train.view(split.validation))
    if len(split.unlabelled):
        at = split.unlabelled[sample(len(split.unlabelled), UNLABELLED_SAMPLE, run.config.seed, "report")]
        unlabelled = _predict(model, "unlabelled", at, train.view(at))
    return held, validation, unlabelled


@torch.no_grad()
def _predict(
    model: Model, which: Literal["test", "validation", "unlabelled"], items: NDArray[np.int64], dataset: Dataset
) -> Predicted:
    z = features(model, HostPool(dataset).inputs)  # on a GPU, all of them might not fit
    flow = model.flow
    auxiliary = model.auxiliary[0](z).float().softmax(1) if len(model.auxiliary) else None
    return Predicted(
        which,
        items,
        dataset,
        _array(model.head(z)),
        _array(auxiliary) if auxiliary is not None else None,
        _array(flow.transform(z)[0]) if flow is not None else None,
    )


def _answers(held: Predicted) -> Answers:
    assert held.which != "unlabelled"
    p = held.p
    return Answers(held.which, held.items, held.dataset.labels, p.argmax(1), p.max(1))


def _auxiliary_kind(model: Model) -> Literal["nfc", "mlp"] | None:
    if not model.spec.auxiliary:
        return None
    return "nfc" if model.spec.auxiliary[0].kind == "nfc" else "mlp"


def _array(tensor: torch.Tensor) -> NDArray[np.float64]:
    return tensor.detach().double().cpu().numpy()
