"""Predict image files and arrays with a trained model: in Python, or into a table (CSV, or Parquet with pyarrow)."""

import csv
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from normatch.data import Files, OnBad, Rows, Samples, find_images, find_samples
from normatch.data.dataset import Selected
from normatch.data.folder import find_ignored, say_ignored
from normatch.data.images import fit_upright
from normatch.device import device_of
from normatch.errors import UserError
from normatch.files import must_be_free, replacing
from normatch.metrics import agreement, untied_argmax
from normatch.nets.model import Model, batch_for, contiguous, load_model
from normatch.text import counted, harmless_cell, on_one_line
from normatch.training.progress import counting
from normatch.training.run import Run

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["MOST", "Inputs", "Prediction", "Predictor", "load", "must_be_a_table", "predict_to", "table"]

Inputs: TypeAlias = "NDArray[Any] | Selected | str | Path | Image.Image | Iterable[str | Path] | Iterable[Image.Image]"
"""uint8 images (N, H, W[, C]), feature vectors (N, D), image files, or images of Pillow's."""
Using: TypeAlias = Literal["model", "baseline"]
"""What of a run predicts."""
Write: TypeAlias = Callable[[Sequence[Sequence[Any]]], None]
"""Appends rows to a table."""

MOST = 256
"""The most inputs that go through the model at once where nothing else is said."""

TABLES = (".csv", ".parquet")
"""Suffixes of a table of predictions or suggestions."""

ROW_GROUP = 65_536
"""Rows of a Parquet file that are written at once."""


class Prediction(NamedTuple):
    """The prediction for one sample.

    The last four fields are None if the model has no flow; of these, only the density is there if its flow is its head.
    """

    sample: str | int
    """Its path, or its row in the array."""
    label: str
    """The most probable class."""
    probability: float
    """The probability of that class."""
    flow_label: str | None = None
    """The most probable class according to the flow, a second, generative classifier; None if several are."""
    flow_probability: float | None = None
    """The largest probability that the flow gives."""
    agree: bool | None = None
    """Whether both predict the same class."""
    flow_log_density: float | None = None
    """log p(z) of the features: the lower, the less the sample is like the training data."""


def load(run: Path | str, device: str = "cpu", *, calibrated: bool = True, using: Using = "model") -> "Predictor":
    """The model of a finished run, ready to predict on ``device``; "auto" is the GPU if there is one.

    Reads ``model.safetensors`` and ``model.json`` only: the training config and data are not needed. Unless
    ``calibrated`` is False, probabilities have the temperature that was fitted on validation samples, if there is one.
    ``using`` "baseline" is the logistic regression of a run on one's own data, ``baseline.safetensors``, instead.
    """
    if using != "model" and Run.open(Path(run)).finished and not Path(run, f"{using}.json").is_file():
        raise UserError(f"{run} has no {using}, which only runs on your own data have: predict with its model")
    model = load_model(Path(run), using)
    if not calibrated:
        model.spec = replace(model.spec, temperature=None)
    return Predictor(model.to(device_of(device)))


class Predictor:
    """Predicts classes of images (N, H, W[, C]) uint8, feature vectors (N, D), image files, or images of Pillow's.

    Inputs go through the model ``batch`` at a time, by default 256, or fewer if they are large images; of files, no
    more than two batches are in memory at once.
    """

    def __init__(self, model: Model) -> None:
        self.model = model.eval()
        self.classes = model.spec.classes

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of its predictions that are not None for every sample."""
        auxiliary = ("flow_label", "flow_probability", "agree") if self.model.has_auxiliary_flow else ()
        density = ("flow_log_density",) if self.model.flow is not None else ()
        return ("sample", "label", "probability", *auxiliary, *density)

    def predict_proba(self, inputs: Inputs, batch: int | None = None) -> NDArray[np.float32]:
        """(N, K) probabilities of each class."""

        def probabilities(x: Tensor) -> Tensor:
            return self.model.probabilities(self.model.features(x))

        return self._all(probabilities, inputs, batch, len(self.classes))

    def predict(self, inputs: Inputs, batch: int | None = None) -> list[str]:
        """The name of the most probable class of each input."""
        return self._named(self.predict_proba(inputs, batch))

    def features(self, inputs: Inputs, batch: int | None = None) -> NDArray[np.float32]:
        """(N, D) features: what the network makes of an input before its classifiers. Inputs that it finds alike have
        features of similar direction."""
        return self._all(self.model.features, inputs, batch, self.model.backbone.features)

    def label(self, inputs: Inputs, batch: int | None = None, *, on_bad: OnBad = "stop") -> list[Prediction]:
        """The full prediction for each input, including that of the flow.

        ``on_bad``: on unreadable files, stop with an error or skip them.
        """
        return [row for rows in self.stream(self._samples(inputs, on_bad), batch) for row in rows]

    def stream(self, samples: Samples, batch: int | None = None) -> Iterator[list[Prediction]]:
        """The predictions for the samples, batch by batch."""
        for names, x in self._batches(samples, batch):
            with torch.inference_mode():
                outputs = self.model.outputs(x)
            p, none = outputs.probabilities.cpu().numpy(), [None] * len(names)
            flow: list[Sequence[Any]] = [none, none, none]
            if outputs.flow_probabilities is not None:
                q = outputs.flow_probabilities.cpu().numpy()
                flow = [
                    [(*self.classes, None)[k] for k in untied_argmax(q)],
                    q.max(1).tolist(),
                    agreement(p, q).tolist(),
                ]
            density = none if outputs.flow_log_density is None else outputs.flow_log_density.tolist()
            yield list(map(Prediction, names, self._named(p), p.max(1).tolist(), *flow, density))

    def _named(self, p: NDArray[np.float32]) -> list[str]:
        return [self.classes[k] for k in p.argmax(1)]

    def _all(
        self, function: Callable[[Tensor], Tensor], inputs: Inputs, batch: int | None, width: int
    ) -> NDArray[np.float32]:
        """(N, width) in float32, batch by batch."""
        with torch.inference_mode():
            parts = [function(x).float().cpu() for _, x in self._batches(self._samples(inputs), batch)]
        return torch.cat([torch.empty(0, width), *parts]).numpy()

    def _samples(self, inputs: Inputs, on_bad: OnBad = "stop") -> Samples:
        shape = self.model.spec.shape
        if isinstance(inputs, np.ndarray | Selected):
            return Rows(inputs, shape)
        from PIL import Image

        paths: list[Path] = []
        pictures: list[NDArray[np.uint8]] = []
        for one in [inputs] if isinstance(inputs, str | os.PathLike | Image.Image) else inputs:
            if isinstance(one, Image.Image) and len(shape) == 3:
                # At once: a file of several frames gives the same image again and again, with another frame in it.
                pictures.append(fit_upright(one, shape[1:], shape[0]))
            elif isinstance(one, str | os.PathLike) and not os.path.isdir(one):
                paths.append(Path(one))
            else:
                what = f"the folder {one}" if isinstance(one, str | os.PathLike) else f"a {type(one).__name__}"
                images = "image files, images of Pillow's, or one array of all images"
                wanted = images if len(shape) == 3 else f"an array of numbers (N, {shape[0]})"
                raise UserError(f"inputs hold {what}: give {wanted}")
        if pictures and paths:
            raise UserError("inputs hold paths and images: give only one of the two")
        return Rows(np.stack(pictures), shape) if pictures else Files(paths, shape, on_bad)

    def _batches(self, samples: Samples, batch: int | None) -> Iterator[tuple[Sequence[str | int], Tensor]]:
        """Batches of names and inputs, on the model's device and in its layout."""
        batch = batch_for(self.model.spec.shape, MOST) if batch is None else batch
        if batch < 1:
            raise UserError(f"batch is {batch}: give a whole number of at least 1")
        device = self.model.normalise.mean.device
        for names, inputs in samples.batches(batch):
            if len(inputs):
                # torch has no read-only tensors, so a read-only memory map is copied.
                host = torch.from_numpy(np.require(inputs, requirements=["C", "W"]))
                x = contiguous(host).to(device, non_blocking=True)
                yield names, x.permute(0, 3, 1, 2) if x.ndim == 4 else x


def predict_to(
    run: Path,
    inputs: Sequence[Path],
    out: Path | None = None,
    *,
    on_bad: OnBad = "stop",
    batch: int | None = None,
    device: str = "auto",
    calibrated: bool = True,
    using: Using = "model",
    force: bool = False,
) -> str:
    """Predict files, folders or an array into a table; return a summary for the user.

    Rows are written as they are predicted; the file ``out`` appears only when it is complete. Without ``out`` the rows
    go to standard output.
    """
    if out is not None:
        must_be_a_table(out, force=force)
    model = load(run, device, calibrated=calibrated, using=using)
    samples = find_samples(inputs, sys.stdin, model.model.spec.shape, on_bad)
    row_of = attrgetter(*model.fields)
    done = 0
    with table(out, [samples.column, *model.fields[1:]]) as write, counting("predict", len(samples)) as progress:
        for rows in model.stream(samples, batch):
            write(list(map(row_of, rows)))
            done += len(rows)
            progress(done)
    temperature = model.model.spec.temperature
    how = f" calibrated by temperature {temperature:.2f}" if temperature else ""
    how += f" of the {using}" if using != "model" else ""
    folders = [place for place in inputs if place.is_dir()]
    lines = [f"{counted(done, 'prediction')}{how}: {out or 'standard output'}"]
    lines += say_ignored(find_ignored(folders, find_images(folders)))
    if samples.skipped:
        lines += [f"{counted(len(samples.skipped), 'unreadable image')} skipped:", *samples.skipped]
    return "\n".join(map(on_one_line, lines))


def must_be_a_table(out: Path, *, force: bool) -> None:
    """Raise UserError unless a table can be written to ``out``; to be called before its rows are computed."""
    if out.suffix.lower() not in TABLES:
        raise UserError(f"out is {out}: give a name that ends in {' or '.join(TABLES)}")
    must_be_free(out, force=force)
    if out.suffix.lower() == ".parquet":
        _pyarrow()


@contextmanager
def table(out: Path | None, columns: Sequence[str]) -> Iterator[Write]:
    """A function that appends rows to a table in ``out`` or, if that is None, on standard output."""
    if out is None:
        with _csv(sys.stdout, columns) as write:
            yield write
        return
    with replacing(out) as part:
        if out.suffix.lower() == ".parquet":
            with _parquet(part, columns) as write:
                yield write
        else:
            with part.open("w", newline="", encoding="utf-8") as file, _csv(file, columns) as write:
                yield write


@contextmanager
def _csv(file: IO[str], columns: Sequence[str]) -> Iterator[Write]:
    rows_of = csv.writer(file, lineterminator="\n")
    # The heading is written with the first rows, so that standard output stays empty if an error comes first.
    heading = [columns]

    def text(value: object) -> str:
        if isinstance(value, str):
            # A terminal would obey the escape sequences of a file's name.
            return harmless_cell(_escaped(on_one_line(value) if file.isatty() else value))
        if isinstance(value, bool):
            return str(value).lower()
        return "" if value is None else f"{value:.6f}" if isinstance(value, float) else str(value)

    def write(rows: Sequence[Sequence[Any]]) -> None:
        if heading:
            rows_of.writerow(heading.pop())
        rows_of.writerows(map(text, row) for row in rows)

    yield write
    write([])


@contextmanager
def _parquet(path: Path, columns: Sequence[str]) -> Iterator[Write]:
    pa, pq = _pyarrow()
    types = dict.fromkeys(("path", "label", "flow_label", "predicted"), pa.string())
    types |= {"sample": pa.int64(), "cluster_size": pa.int64(), "agree": pa.bool_()}
    schema = pa.schema([(name, types.get(name, pa.float32())) for name in columns])
    waiting: list[Sequence[Any]] = []

    def write(rows: Sequence[Sequence[Any]], least: int | None = None) -> None:
        waiting.extend(rows)
        if len(waiting) >= (least or ROW_GROUP):
            values = [[_escaped(value) for value in column] for column in zip(*waiting, strict=True)]
            file.write_table(pa.table(values, schema=schema))
            waiting.clear()

    with pq.ParquetWriter(path, schema) as file:
        yield write
        write([], least=1)


def _escaped(value: Any) -> Any:
    """What is not valid text in the name of a file or class becomes escapes."""
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise UserError("a .parquet file needs pyarrow: pip install 'normatch[parquet]', or write a .csv") from error
    return pyarrow, pyarrow.parquet
