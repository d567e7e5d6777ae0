"""Predict image files and arrays with a trained model."""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from normatch.data import UNKNOWN, Files, Items, OnBad, Rows
from normatch.data.images.decode import fit_upright
from normatch.data.selected import Selected
from normatch.device import device_of
from normatch.errors import UserError
from normatch.evaluate.metrics import agreement, named
from normatch.nets.model import Model, batch_for, contiguous, load_model

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["MOST", "Inputs", "Prediction", "Predictor", "load"]

Inputs: TypeAlias = "NDArray[Any] | Selected | str | Path | Image.Image | Iterable[str | Path] | Iterable[Image.Image]"
"""uint8 images (N, H, W[, C]), feature vectors (N, D), image files, or images of Pillow's."""

MOST = 256
"""The most inputs that go through the model at once where nothing else is said."""


class Prediction(NamedTuple):
    """The prediction for one item.

    The last four fields are None if the model has no flow; of these, only the density is there if its flow is its head.
    """

    item: str | int
    """Its path, or its row in the array."""
    label: str
    """The likeliest class."""
    probability: float
    """The probability of that class."""
    flow_label: str | None = None
    """The likeliest class according to the flow, a second, generative classifier; None if several are."""
    flow_probability: float | None = None
    """The largest probability that the flow gives."""
    agree: bool | None = None
    """Whether both name the same class."""
    flow_log_density: float | None = None
    """log p(z) of the features: the lower, the less the item is like the training data."""


def load(run: Path | str, device: str = "cpu") -> "Predictor":
    """The model of a finished run, ready to predict on ``device``; "auto" is the GPU if there is one.

    Reads ``model.safetensors`` and ``model.json`` only: the training config and data are not needed.
    """
    return Predictor(load_model(Path(run)).to(device_of(device)))


class Predictor:
    """Predicts classes of images (N, H, W[, C]) uint8, feature vectors (N, D), image files, or images of Pillow's.

    Inputs go through the model ``batch`` at a time, by default 256, or fewer if they are large pictures; of files, no
    more than two batches are in memory at once.
    """

    def __init__(self, model: Model) -> None:
        self.model = model.eval()
        self.classes = model.spec.classes

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of its predictions that are not None for every item."""
        second = ("flow_label", "flow_probability", "agree") if self.model.has_auxiliary_flow else ()
        density = ("flow_log_density",) if self.model.flow is not None else ()
        return ("item", "label", "probability", *second, *density)

    def predict_proba(self, inputs: Inputs, batch: int | None = None) -> NDArray[np.float32]:
        """(N, K) probabilities of each class."""
        with torch.inference_mode():
            parts = [self.model(x).float().softmax(1).cpu() for _, x in self._batches(self._items(inputs), batch)]
        return torch.cat([torch.empty(0, len(self.classes)), *parts]).numpy()

    def predict(self, inputs: Inputs, batch: int | None = None) -> list[str]:
        """The name of the likeliest class of each input."""
        return [self.classes[k] for k in self.predict_proba(inputs, batch).argmax(1)]

    def features(self, inputs: Inputs, batch: int | None = None) -> NDArray[np.float32]:
        """(N, D) features: what the network makes of an input before its classifiers. Inputs that it finds alike have
        features of similar direction."""
        with torch.inference_mode():
            parts = [self.model.features(x).float().cpu() for _, x in self._batches(self._items(inputs), batch)]
        return torch.cat([torch.empty(0, self.model.backbone.features), *parts]).numpy()

    def label(self, inputs: Inputs, batch: int | None = None, *, on_bad: OnBad = "stop") -> list[Prediction]:
        """The full prediction for each input, including that of the flow.

        ``on_bad``: on unreadable files, stop with an error or skip them.
        """
        return [row for rows in self.stream(self._items(inputs, on_bad), batch) for row in rows]

    def stream(self, items: Items, batch: int | None = None) -> Iterator[list[Prediction]]:
        """The predictions for the items, batch by batch."""
        for names, x in self._batches(items, batch):
            with torch.inference_mode():
                outputs = self.model.outputs(x)
            p = _array(outputs.probabilities)
            columns: list[Sequence[Any]] = [names, [self.classes[k] for k in p.argmax(1)], p.max(1).tolist()]
            none = [None] * len(names)
            if outputs.flow_probabilities is not None:
                q = _array(outputs.flow_probabilities)
                labels = [self.classes[k] if k != UNKNOWN else None for k in named(q)]
                columns += [labels, q.max(1).tolist(), agreement(p, q).tolist()]
            else:
                columns += [none] * 3
            columns.append(none if outputs.flow_log_density is None else outputs.flow_log_density.tolist())
            yield [Prediction(*row) for row in zip(*columns, strict=True)]

    def _items(self, inputs: Inputs, on_bad: OnBad = "stop") -> Items:
        shape = self.model.spec.shape
        if isinstance(inputs, np.ndarray | Selected):
            return Rows(inputs, shape)
        from PIL import Image

        paths: list[Path] = []
        pictures: list[NDArray[np.uint8]] = []
        for given in inputs if isinstance(inputs, Iterable) and not isinstance(inputs, str) else [inputs]:
            if isinstance(given, Image.Image):
                if len(shape) != 3:
                    raise UserError(
                        f"inputs hold images, but this model takes feature vectors: give numbers (N, {shape[0]})"
                    )
                # At once: a file of several frames gives the same image again and again, with another frame in it.
                pictures.append(fit_upright(given, shape[1:], 1 if shape[0] == 1 else 3))
                continue
            if not isinstance(given, str | os.PathLike):
                raise UserError(
                    f"inputs hold a {type(given).__name__}: give paths of images, images of Pillow's, or one array of "
                    "all items"
                )
            if os.path.isdir(given):
                raise UserError(
                    f"{given} is a folder: give the images in it, such as Path({str(given)!r}).rglob('*.png')"
                )
            paths.append(Path(given))
        if pictures and paths:
            raise UserError("inputs hold paths and images: give only one of the two")
        return Rows(np.stack(pictures), shape) if pictures else Files(paths, shape, on_bad)

    def _batches(self, items: Items, batch: int | None) -> Iterator[tuple[Sequence[str | int], Tensor]]:
        """Batches of names and inputs, on the model's device and in its layout."""
        batch = batch_for(self.model.spec.shape, MOST) if batch is None else batch
        if batch < 1:
            raise UserError(f"batch is {batch}: give a whole number of at least 1")
        device = self.model.normalise.mean.device
        for names, inputs in items.batches(batch):
            if len(inputs):
                # torch has no read-only tensors, so a read-only memory map is copied.
                host = torch.from_numpy(np.require(inputs, requirements=["C", "W"]))
                x = contiguous(host).to(device, non_blocking=True)
                yield names, x.permute(0, 3, 1, 2) if x.ndim == 4 else x


def _array(p: Tensor) -> NDArray[np.float32]:
    return p.float().cpu().numpy()
