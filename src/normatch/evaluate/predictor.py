"""A trained model that predicts images, files and arrays."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from normatch.data import Channels, decode_all
from normatch.errors import UserError
from normatch.images import Decoded, OnBad
from normatch.inference import logits
from normatch.model import Model
from normatch.weights import load_model

__all__ = ["COLUMNS", "Predictor", "load"]

COLUMNS = ("path", "label", "probability")
"""Of the table that :meth:`Predictor.label` makes."""


def load(run: Path | str, device: str = "cpu") -> "Predictor":
    """The model of a finished run, ready to predict on ``device``; "auto" is the GPU where there is one.

    Reads ``model.safetensors`` and ``model.json`` only: the training config and data are not needed.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return Predictor(load_model(Path(run)).to(device))


class Predictor:
    """Predicts classes of images (N, H, W[, C]) uint8, feature vectors (N, D), or image files."""

    def __init__(self, model: Model) -> None:
        self.model = model.eval()
        self.classes = model.spec.classes

    def predict_proba(self, inputs: NDArray[Any] | str | Path | Sequence[str | Path]) -> NDArray[np.float32]:
        """(N, K) probabilities of each class."""
        p = logits(self.model, self._tensor(inputs)).softmax(1).cpu().numpy()
        return np.asarray(p, dtype=np.float32)

    def predict(self, inputs: NDArray[Any] | str | Path | Sequence[str | Path]) -> list[str]:
        """The name of the likeliest class of each input."""
        return [self.classes[k] for k in self.predict_proba(inputs).argmax(1)]

    def label(self, paths: Sequence[Path], on_bad: OnBad = "stop") -> tuple[list[dict[str, str]], tuple[str, ...]]:
        """A row for each image file: its path, likeliest class and that class's probability; and what was skipped."""
        decoded = self._decode(paths, on_bad)
        p = self.predict_proba(decoded.images)
        rows = [
            {"path": str(paths[i]), "label": self.classes[row.argmax()], "probability": f"{row.max():.6f}"}
            for i, row in zip(decoded.kept, p, strict=True)
        ]
        return rows, decoded.bad

    def _tensor(self, inputs: NDArray[Any] | str | Path | Sequence[str | Path]) -> torch.Tensor:
        if isinstance(inputs, str | Path):
            inputs = [inputs]
        array = inputs if isinstance(inputs, np.ndarray) else self._decode(inputs).images
        shape = self.model.spec.shape
        if len(shape) == 1:
            if array.ndim != 2 or array.shape[1:] != shape:
                raise UserError(f"features have shape {array.shape}: this model takes (N, {shape[0]})")
            if not np.isfinite(array).all():
                bad = int((~np.isfinite(array).all(1)).sum())
                raise UserError(f"{bad} of {len(array)} feature vectors hold NaN or infinity: mend or drop them")
            return torch.from_numpy(array.astype(np.float32))
        if array.ndim == 3:
            array = array[..., None]
        channels, height, width = shape
        if array.dtype != np.uint8 or array.ndim != 4 or array.shape[1:] != (height, width, channels):
            raise UserError(
                f"images are {array.dtype} of shape {array.shape}: this model takes uint8 "
                f"(N, {height}, {width}, {channels}); give files to have them resized"
            )
        return torch.from_numpy(np.ascontiguousarray(array)).permute(0, 3, 1, 2)

    def _decode(self, paths: Iterable[str | Path], on_bad: OnBad = "stop") -> Decoded:
        shape = self.model.spec.shape
        if len(shape) == 1:
            raise UserError(f"this model takes feature vectors of length {shape[0]}, not image files: give an array")
        channels: Channels = 1 if shape[0] == 1 else 3
        # A model of images that are not square was trained on images that all had one size: they keep it.
        size = shape[1] if shape[1] == shape[2] else None
        return decode_all([Path(p) for p in paths], size=size, channels=channels, on_bad=on_bad)
